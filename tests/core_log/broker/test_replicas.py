"""A partition has on each broker the role that the metadata gives it, and answers accordingly."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.core_log.replication.follower import Follower
from headwater.core_log.replication.leader import Leader
from tests.builders import values_of
from tests.core_log.broker.replicated import TOPIC, Node, Replicated

LATEST = -1


@pytest.fixture
async def cluster() -> AsyncIterator[Replicated]:
    cluster = Replicated(is_linked=False)
    await cluster.create()
    yield cluster
    await cluster.close()


def copy(leader: Node, follower: Node) -> None:
    """Brings all records of the leader to the follower's disk, as its fetches would."""
    data = b"".join(bytes(each) for each in leader.partition.log.batches(0))
    partition = follower.partition
    partition.log.append_as_follower(memoryview(data))
    partition.role.on_append(partition.log.end_offset, partition.log.last_epoch)  # type: ignore
    partition.log.sync()
    partition.on_durable()


async def latest(node: Node, version: int = 11) -> tuple[int, int]:
    part = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[part])
    answer = (await node.ask(ListOffsetsRequest(topics=[topic]), version)).topics[0].partitions[0]
    return answer.error_code, answer.offset


async def until_on_disk(node: Node, end_offset: int) -> None:
    done = asyncio.Event()
    node.partition.when_synced(end_offset, done.set)
    await done.wait()


async def test_each_broker_has_the_role_that_the_metadata_gives_it(cluster: Replicated) -> None:
    roles = {each: type(node.partition.role) for each, node in cluster.nodes.items()}

    answers = [await node.produce("x", acks=1) for node in cluster.nodes.values()]

    assert roles == {1: Leader, 2: Follower, 3: Follower}
    assert [each.error_code for each in answers] == [
        ErrorCode.NONE,
        *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2,
    ]
    assert not any(node.broker.unserved for node in cluster.nodes.values())


async def test_a_record_is_committed_once_every_replica_in_sync_has_it(
    cluster: Replicated,
) -> None:
    leader, second, third = cluster.nodes.values()
    producing = asyncio.ensure_future(leader.produce("x"))
    await until_on_disk(leader, 1)

    await leader.fetch(1, by=second, last_epoch=0)
    unseen = await leader.fetch(0)
    seen_by_replica = await leader.fetch(0, by=third)
    assert not producing.done()
    await leader.fetch(1, by=third, last_epoch=0)

    assert (await producing).error_code == ErrorCode.NONE
    assert (bytes(unseen.records), unseen.high_watermark) == (b"", 0)
    assert len(seen_by_replica.records) > 0
    assert len((await leader.fetch(0)).records) > 0


async def test_a_claim_under_another_registration_is_refused(
    cluster: Replicated,
) -> None:
    leader, second, third = cluster.nodes.values()
    asking = asyncio.ensure_future(leader.produce("x"))
    await until_on_disk(leader, 1)
    await leader.fetch(1, by=second, last_epoch=0)

    older = third.broker.broker_epoch - 1
    refused = await leader.fetch(1, by=third, last_epoch=0, broker_epoch=older)

    assert refused.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader.partition.high_watermark == 0
    await leader.fetch(1, by=third, last_epoch=0)
    assert (await asking).error_code == ErrorCode.NONE


async def test_a_fetch_of_a_log_that_diverges_proves_nothing(cluster: Replicated) -> None:
    leader, second, third = cluster.nodes.values()
    cluster.elect((2, 1, 3), alive=(2, 3))
    await cluster.tell(2)
    producing = asyncio.ensure_future(second.produce("of the next epoch"))
    await until_on_disk(second, 1)
    await second.fetch(1, by=leader, last_epoch=1)

    diverging = await second.fetch(1, by=third, last_epoch=0)

    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 0)
    assert second.partition.high_watermark == 0
    await second.fetch(1, by=third, last_epoch=1)
    assert (await producing).error_code == ErrorCode.NONE


async def test_waiters_for_a_leader_that_is_replaced_are_told(cluster: Replicated) -> None:
    leader = cluster.nodes[1]
    producing = asyncio.ensure_future(leader.produce("x"))
    await until_on_disk(leader, 1)
    fetching = asyncio.ensure_future(leader.fetch(1, wait_ms=60_000))
    await asyncio.sleep(0)

    cluster.elect((2, 3))
    await cluster.tell(1, 2)

    assert (await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await fetching).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert isinstance(leader.partition.role, Follower)
    assert isinstance(cluster.nodes[2].partition.role, Leader)


async def test_an_epoch_without_records_is_forgotten_by_who_led_it(cluster: Replicated) -> None:
    leader = cluster.nodes[1]
    await leader.produce("x", acks=1)
    cluster.elect((2, 1, 3), alive=(2, 3))
    await cluster.tell(2)
    cluster.elect((1, 2, 3), alive=(1, 3))
    await cluster.tell(1, 2)
    cluster.elect((2, 1, 3), alive=(2, 3))

    await cluster.tell(1)

    assert [each.epoch for each in leader.partition.log.epochs.starts] == [0]


async def test_a_new_leader_begins_with_the_mark_it_knew_and_tells_no_end_before_it_knows(
    cluster: Replicated,
) -> None:
    leader, second, third = cluster.nodes.values()
    await leader.produce("x", acks=1)
    await until_on_disk(leader, 1)
    copy(leader, second)
    cluster.elect((2, 3))
    await cluster.tell(2)

    before, before_in_old = await latest(second), await latest(second, 4)
    await second.fetch(1, by=third, last_epoch=0)
    asked = asyncio.ensure_future(latest(second))
    wire = InProcessChannel(second.server, ("node-2", 9092))
    for _ in range(50):  # a fetch that it begins after an answer proves that the second leads
        await asyncio.sleep(0)
        await second.fetch(1, by=third, last_epoch=0, channel=wire)

    assert before[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert before_in_old[0] == ErrorCode.LEADER_NOT_AVAILABLE
    assert await asked == (ErrorCode.NONE, 1)
    assert values_of(second.partition.log) == [(0, b"x")]


async def test_acks_of_all_are_refused_while_too_few_are_in_sync(cluster: Replicated) -> None:
    leader = cluster.nodes[1]
    decision = cluster.controller.replace_config(TOPIC, {"min.insync.replicas": "2"})
    cluster.commit(decision)
    await cluster.tell(1)
    producing = asyncio.ensure_future(leader.produce("x"))
    await until_on_disk(leader, 1)

    cluster.elect((1,))
    await cluster.tell(1)
    later = await leader.produce("y")

    assert (await producing).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert later.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.partition.high_watermark == 0


async def test_a_restarted_replica_goes_on_with_the_mark_that_it_wrote(
    cluster: Replicated,
) -> None:
    leader, second, third = cluster.nodes.values()
    producing = asyncio.ensure_future(leader.produce("x"))
    await until_on_disk(leader, 1)
    for each in (second, third):
        await leader.fetch(1, by=each, last_epoch=0)
    await producing
    await leader.produce("not committed", acks=1)
    await until_on_disk(leader, 2)

    again = await cluster.restart(1)
    await cluster.tell(1, 2)

    assert isinstance(again.partition.role, Follower)
    assert (again.partition.high_watermark, again.partition.log.end_offset) == (1, 2)


async def test_a_partition_without_a_leader_waits_for_one(cluster: Replicated) -> None:
    leader = cluster.nodes[1]

    cluster.elect((), alive=(9,))
    await cluster.tell(1)
    refused = await leader.produce("x", acks=1)
    cluster.elect((1,))
    await cluster.tell(1)

    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await leader.produce("x", acks=1)).error_code == ErrorCode.NONE
