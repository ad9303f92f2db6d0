"""Five brokers vote once somebody has added two voters, and any two of them may be gone."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.add_raft_voter import AddRaftVoterRequest
from headwater.core_log.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from headwater.core_log.replication.leader import Leader
from tests.core_log.broker.cluster_in_memory import Cluster
from tests.core_log.broker.replicated_topic import (
    create,
    leader_of,
    produce,
    record_of,
    start_three,
    stored,
)

pytestmark = pytest.mark.slow


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    await cluster.close()


def votes(broker: Broker) -> list[int]:
    return [each.node_id for each in broker.quorum.voters]


async def add_voter(cluster: Cluster, node_id: int) -> None:
    """As `kafka-metadata-quorum add-controller` does."""
    key = cluster.brokers[node_id].quorum.replica
    request = AddRaftVoterRequest(
        cluster_id=cluster.cluster_id,
        timeout_ms=10_000,
        voter_id=node_id,
        voter_directory_id=key.directory_id,
    )
    client = await cluster.client_of(1)
    code = ErrorCode.REQUEST_TIMED_OUT
    while code == ErrorCode.REQUEST_TIMED_OUT:  # it has not caught up, or a change is under way
        code = ErrorCode((await client.ask(request)).error_code)
        await asyncio.sleep(0.05)
    client.close()
    assert code is ErrorCode.NONE


async def start_five(cluster: Cluster) -> None:
    await start_three(cluster)
    for node_id in (4, 5):
        await cluster.start(node_id)
        await add_voter(cluster, node_id)
    await cluster.until(
        lambda: all(votes(each) == [1, 2, 3, 4, 5] for each in cluster.brokers.values())
    )


async def test_a_cluster_of_five_voters_goes_on_without_any_two(cluster: Cluster) -> None:
    await start_five(cluster)
    await create(cluster)
    await produce(cluster, "of five")

    controller = cluster.controller
    assert controller is not None
    gone = {controller.node_id, record_of(cluster).leader}
    gone |= {next(each for each in (5, 4) if each not in gone)} if len(gone) < 2 else set()
    for node_id in gone:
        cluster.kill(node_id)
    await cluster.until(lambda: cluster.controller is not None)
    await cluster.until(lambda: record_of(cluster).leader in cluster.brokers)
    await cluster.until(lambda: {*record_of(cluster).in_sync} <= cluster.brokers.keys())
    await cluster.until(lambda: len(record_of(cluster).in_sync) >= 2)
    await cluster.until(lambda: leads_with_others(cluster))
    await produce(cluster, "of three")
    for node_id in gone:
        await cluster.start(node_id)
    await cluster.until(lambda: len(record_of(cluster).in_sync) == 3)

    holders = [each for each in cluster.brokers.values() if stored(each)]
    assert [stored(each) for each in holders] == [[b"of five", b"of three"]] * 3
    assert votes(cluster.brokers[1]) == [1, 2, 3, 4, 5]


def leads_with_others(cluster: Cluster) -> bool:
    """Whether the leader itself has heard that it leads, and who is in sync."""
    leader = leader_of(cluster)
    partition = None if leader is None else leader.find_led("t", 0)
    return (
        partition is not None
        and isinstance(partition.leader, Leader)
        and len(partition.leader.in_sync) >= 2
    )


async def test_one_of_five_voters_votes_again_after_its_disk_is_lost(cluster: Cluster) -> None:
    await start_five(cluster)
    cluster.kill(5)
    await cluster.until(lambda: 5 not in cluster.brokers[1].image.alive)
    del cluster.files[5]

    fifth = await cluster.start(5)

    await cluster.until(lambda: fifth.quorum.replica in cluster.brokers[1].quorum.voters)
    assert votes(cluster.brokers[1]) == [1, 2, 3, 4, 5]


async def test_a_voter_is_replaced_by_a_broker_in_a_rack_without_votes(cluster: Cluster) -> None:
    for node_id, rack in enumerate("abcac", start=1):
        await cluster.start(node_id, rack=rack, replace_voters_after_ms=3_000)
        await cluster.until(lambda count=node_id: count != 3 or len(votes(cluster.brokers[1])) == 3)
    controller = cluster.controller
    assert controller is not None and votes(controller) == [1, 2, 3]

    cluster.kill(3)
    await cluster.until(lambda: 3 not in votes(controller))

    assert votes(controller) == [1, 2, 5]


async def test_a_fourth_voter_brings_no_fifth(cluster: Cluster) -> None:
    await start_five(cluster)
    asked = RemoveRaftVoterRequest(
        cluster_id=cluster.cluster_id,
        voter_id=5,
        voter_directory_id=cluster.brokers[5].quorum.replica.directory_id,
    )
    client = await cluster.client_of(1)

    assert (await client.ask(asked)).error_code == ErrorCode.NONE

    client.close()
    controller = cluster.controller
    assert controller is not None
    quorum = controller.quorum.quorum
    fifth = cluster.brokers[5].quorum.replica
    await cluster.until(lambda: quorum.progress[fifth] >= quorum.high_watermark)
    controller.active_controller._propose_voters(controller.clock.monotonic_ms())
    assert votes(controller) == [1, 2, 3, 4]


async def test_a_minority_of_five_elects_nobody(cluster: Cluster) -> None:
    await start_five(cluster)
    for node_id in (1, 2, 3):
        cluster.kill(node_id)

    await cluster.until(lambda: all(each.quorum.leader_id < 0 for each in cluster.brokers.values()))

    assert cluster.controller is None
