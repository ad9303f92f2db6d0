"""No answer by which somebody decides exactness comes from a leader that was replaced."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.groups.group_coordinator import partition_of
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from headwater.core_log.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headwater.core_log.replication.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.core_log.broker.replicated import TOPIC, Node, Replicated
from tests.core_log.broker.test_cluster_transactions import PARTITIONS, TV1, Cluster, Producer
from tests.core_log.broker.test_replicas import latest

DATA_0 = TopicPartition("data", 0)
UNAVAILABLE = (ErrorCode.OFFSET_NOT_AVAILABLE, -1)


PATIENCE = "headwater.core_log.broker.partition.PROOF_WAIT_S_MAX"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that comes is waited for on a busy machine, too."""
    monkeypatch.setattr(PATIENCE, 60)


def lose_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proof will come."""
    monkeypatch.setattr(PATIENCE, 0.05)


@pytest.fixture
async def cluster() -> AsyncIterator[Replicated]:
    cluster = Replicated()
    await cluster.create()
    yield cluster
    await cluster.close()


async def epoch_end(node: Node) -> ErrorCode:
    part = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic=TOPIC, partitions=[part])
    answer = await node.ask(OffsetForLeaderEpochRequest(topics=[topic]))
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def test_followers_that_wait_for_records_prove_at_once_that_their_leader_leads(
    cluster: Replicated,
) -> None:
    leader = cluster.nodes[1]
    await leader.produce("x")

    assert [await latest(leader) for _ in range(3)] == [(ErrorCode.NONE, 1)] * 3
    assert await epoch_end(leader) is ErrorCode.NONE


async def test_a_leader_that_was_replaced_unheard_tells_no_end(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, _ = cluster.nodes.values()
    await old.produce("x")
    cluster.elect((2, 3))
    await cluster.tell(2, 3)
    await new.produce("y")

    assert await latest(new) == (ErrorCode.NONE, 2)
    assert (await new.fetch(3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    lose_patience(monkeypatch)
    assert await latest(old) == UNAVAILABLE
    assert (await old.fetch(2)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert await epoch_end(old) is ErrorCode.OFFSET_NOT_AVAILABLE


async def test_a_leader_with_too_few_in_sync_tells_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lose_patience(monkeypatch)
    cluster = Replicated(is_linked=False)
    await cluster.create(min_insync_replicas="2")
    cluster.elect((1,))
    await cluster.tell(1)

    assert await latest(cluster.nodes[1]) == UNAVAILABLE
    await cluster.close()


async def test_a_fetch_that_was_under_way_proves_nothing() -> None:
    cluster = Replicated(nodes=2, is_linked=False)
    await cluster.create(replicas=2)
    leader, follower = cluster.nodes.values()
    wire = InProcessChannel(leader.server, ("node-1", 9092))

    def fetch(wait_ms: int) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(leader.fetch(0, by=follower, wait_ms=wait_ms, channel=wire))

    await fetch(0)
    parked = fetch(60_000)
    await asyncio.sleep(0)
    asked = asyncio.ensure_future(latest(leader))
    await parked  # it is answered because of the question
    for _ in range(10):
        await asyncio.sleep(0)
    early = asked.done()
    await fetch(0)

    assert not early
    assert await asked == (ErrorCode.NONE, 0)
    await cluster.close()


async def test_a_fetch_on_another_connection_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer to the first may be on its way, or lost, when the second was begun."""
    lose_patience(monkeypatch)
    cluster = Replicated(nodes=2, is_linked=False)
    await cluster.create(replicas=2)
    leader, follower = cluster.nodes.values()
    wires = [InProcessChannel(leader.server, ("node-1", 9092)) for _ in range(2)]

    asked = asyncio.ensure_future(latest(leader))
    await asyncio.sleep(0)
    for wire in wires:
        await leader.fetch(0, by=follower, channel=wire)

    assert await asked == UNAVAILABLE
    await cluster.close()


async def coordinated() -> Cluster:
    cluster = Cluster()
    await cluster.begin()
    return cluster


async def test_a_former_coordinator_tells_nobody_that_a_partition_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = await coordinated()
    producer = Producer(cluster, TV1)
    await producer.start()
    await producer.add(0)
    old = cluster.coordinator_of("payments")

    known = await old.broker.transactions.verify_or_add(
        "payments", producer.producer_id, producer.epoch, [DATA_0], may_add=False
    )
    await cluster.move(
        TRANSACTIONS_TOPIC, partition_of("payments", PARTITIONS), unheard_by=old.node_id
    )
    lose_patience(monkeypatch)
    unsure = await old.broker.transactions.verify_or_add(
        "payments", producer.producer_id, producer.epoch, [DATA_0], may_add=False
    )

    assert known == {DATA_0: ErrorCode.NONE}
    assert unsure == {DATA_0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    await cluster.close()


async def test_a_former_coordinator_tells_nobody_the_offsets_of_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = await coordinated()
    old = cluster.coordinator_of("g", OFFSETS_TOPIC)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))

    known = await old.ask(request, 8)
    await cluster.move(OFFSETS_TOPIC, partition_of("g", PARTITIONS), unheard_by=old.node_id)
    lose_patience(monkeypatch)
    unsure = await old.ask(request, 8)

    assert known.groups[0].error_code == ErrorCode.NONE
    assert unsure.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await cluster.close()
