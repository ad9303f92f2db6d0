"""Followers copy their leaders, byte for byte, and give up only what was never committed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from headwater.core_log.broker import replica_fetcher, replica_fetches
from headwater.core_log.broker.coordination import Coordination
from headwater.core_log.broker.lifecycle import PartitionRecovery
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.builders import values_of
from tests.core_log.broker.replicated import TOPIC, Links, Node, Replicated
from tests.fakes import FaultyFiles

TRIES_MAX = 20_000
FOR_EVER_MS = 60_000_000


@pytest.fixture
async def cluster() -> AsyncIterator[Replicated]:
    cluster = Replicated()
    await cluster.create()
    yield cluster
    await cluster.close()


async def until(met: Callable[[], object]) -> None:
    for _ in range(TRIES_MAX):
        if met():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("never")


def bytes_of(node: Node) -> bytes:
    log = node.partition.log
    return b"".join(bytes(each) for each in log.batches(log.start_offset))


def values(node: Node) -> list[bytes | None]:
    return [value for _, value in values_of(node.partition.log)]


@pytest.mark.slow
async def test_an_acknowledged_record_is_on_every_disk_in_sync(cluster: Replicated) -> None:
    leader, second, third = cluster.nodes.values()

    for number in range(3):
        assert (await leader.produce(f"value {number}")).error_code == ErrorCode.NONE
        durable = {node.partition.log.durable_offset for node in (leader, second, third)}
        assert durable == {number + 1}

    assert bytes_of(second) == bytes_of(third) == bytes_of(leader)
    await until(lambda: second.partition.high_watermark == third.partition.high_watermark == 3)


async def test_followers_get_a_record_before_the_leader_has_it_on_disk() -> None:
    cluster = Replicated(flush_wait_ms_max=3_600_000)
    await cluster.create()
    leader, second, third = cluster.nodes.values()

    await leader.produce("not synced here", acks=1)
    await until(lambda: all(each.partition.log.durable_offset for each in (second, third)))

    assert leader.partition.log.durable_offset == leader.partition.high_watermark == 0
    await cluster.close()


async def test_a_follower_that_was_cut_off_catches_up(cluster: Replicated) -> None:
    leader, second, third = cluster.nodes.values()
    third.links.cut(1)
    cluster.elect((1, 2))
    await cluster.tell(1, 2, 3)
    for number in range(5):
        await leader.produce(f"value {number}")

    third.links.mend()
    await until(lambda: third.partition.log.durable_offset == 5)

    assert bytes_of(third) == bytes_of(second) == bytes_of(leader)


async def test_a_deposed_leader_gives_up_what_nobody_else_had(cluster: Replicated) -> None:
    first, second, third = cluster.nodes.values()
    await first.produce("kept")
    for node in (second, third):
        node.links.cut(1)
    await first.produce("never copied", acks=1)

    cluster.elect((2, 3))
    await cluster.tell(2, 3)
    await second.produce("of the next epoch")
    await cluster.tell(1)
    await until(lambda: bytes_of(first) == bytes_of(second))

    assert values(first) == [b"kept", b"of the next epoch"]
    assert first.partition.log.epochs.starts == second.partition.log.epochs.starts


async def test_two_quick_elections_leave_equal_logs(cluster: Replicated) -> None:
    first, second, third = cluster.nodes.values()
    for node in cluster.nodes.values():
        node.links.cut(*cluster.nodes)
    await first.produce("of epoch 0", acks=1)
    cluster.elect((2, 1, 3), alive=(2, 3))
    await cluster.tell(2)
    await second.produce("of epoch 1", acks=1)
    await second.produce("of epoch 1, too", acks=1)

    cluster.elect((3, 1, 2), alive=(3,))
    await cluster.tell(1, 2, 3)
    for node in cluster.nodes.values():
        node.links.mend()
    await third.produce("of epoch 2")

    await until(lambda: bytes_of(first) == bytes_of(second) == bytes_of(third))
    assert values(first) == [b"of epoch 2"]


@pytest.mark.slow
@pytest.mark.parametrize("allows_unclean", [False, True])
async def test_committed_records_are_given_up_only_where_somebody_allowed_it(
    allows_unclean: bool,
) -> None:
    cluster = Replicated()
    await cluster.create(unclean_leader_election_enable=str(allows_unclean).lower())
    first, second, third = cluster.nodes.values()
    third.links.cut(1)
    cluster.elect((1, 2))
    await cluster.tell(1, 2, 3)
    await first.produce("committed")
    await until(lambda: second.partition.high_watermark == 1)

    cluster.elect((3,))
    await cluster.tell(1, 2, 3)
    await third.produce("of who was never in sync")
    if allows_unclean:
        await until(lambda: bytes_of(second) == bytes_of(third))
        assert second.broker.store.high_watermark(second.partition.log) <= 1
    else:
        await until(lambda: (TOPIC, 0) in second.broker.replicas._reasons)
        assert values(second) == [b"committed"]
        reason = second.broker.replicas._reasons[TOPIC, 0]
        assert "the leader does not have committed records" in reason
    await cluster.close()


async def test_deleted_records_are_deleted_on_followers(cluster: Replicated) -> None:
    leader, second, third = cluster.nodes.values()
    for number in range(4):
        await leader.produce(f"value {number}")

    code = await delete_before(leader, 3)

    assert (code, leader.partition.low_watermark) == (ErrorCode.NONE, 3)
    assert [node.partition.log.start_offset for node in (second, third)] == [3, 3]


async def delete_before(leader: Node, offset: int, *, timeout_ms: int = 5_000) -> int:
    """Returns the code of the answer."""
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=[part])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
    return (await leader.ask(request)).topics[0].partitions[0].error_code


async def test_a_request_to_delete_waits_for_a_follower_that_may_join_at_any_moment(
    cluster: Replicated,
) -> None:
    """Once the controller has written the proposal, the follower may be elected."""
    leader, _, third = cluster.nodes.values()
    cluster.loses_requests = 1_000
    cluster.elect((1, 2))
    await cluster.tell(1, 2, 3)
    await leader.produce("value 0")
    await until(lambda: leader.partition.waits_for(3))
    third.links.cut(1)

    waiting = await delete_before(leader, 1, timeout_ms=50)
    third.links.mend()
    answered = await delete_before(leader, 1)

    assert (waiting, answered) == (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE)
    assert cluster.state.in_sync == (1, 2)
    assert third.partition.log.start_offset == 1


async def test_a_request_to_delete_waits_while_too_few_are_in_sync(cluster: Replicated) -> None:
    """Those that dropped out meanwhile may be elected, and have what is to be deleted."""
    leader, second, third = cluster.nodes.values()
    cluster.commit(cluster.controller.replace_config(TOPIC, {"min.insync.replicas": "2"}))
    await cluster.tell(1, 2, 3)
    await leader.produce("value 0")
    for node in (second, third):
        node.links.cut(1)
    cluster.elect((1,))
    await cluster.tell(1, 2, 3)

    waiting = await delete_before(leader, 1, timeout_ms=50)
    for node in (second, third):
        node.links.mend()
    answered = await delete_before(leader, 1)

    assert (waiting, answered) == (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE)
    assert 1 in (second.partition.log.start_offset, third.partition.log.start_offset)


async def test_a_follower_whose_records_are_all_deleted_starts_over(cluster: Replicated) -> None:
    leader, _, third = cluster.nodes.values()
    await leader.produce("value 0")
    third.links.cut(1)
    cluster.elect((1, 2))
    await cluster.tell(1, 2, 3)
    for number in range(1, 4):
        await leader.produce(f"value {number}")
    leader.partition.log.delete_records_before(3)

    third.links.mend()
    await until(lambda: third.partition.log.durable_offset == 4)

    assert (third.partition.log.start_offset, values(third)) == (3, [b"value 3"])


async def test_a_follower_stores_the_marks_of_compaction_with_what_it_copies(
    cluster: Replicated,
) -> None:
    leader, second, third = cluster.nodes.values()
    await leader.produce("value 0")

    leader.partition.log.note_cleaned(cleaned_to=1, deletes_dropped_to=1)
    await leader.produce("value 1")

    for node in (second, third):
        log = node.partition.log
        assert (log.cleaned_to, log.deletes_dropped_to) == (1, 1)
        assert values(node) == [b"value 0", b"value 1"]


async def test_a_follower_that_missed_dropped_deletes_starts_over(cluster: Replicated) -> None:
    leader, _, third = cluster.nodes.values()
    await leader.produce("deleted later")
    third.links.cut(1)
    cluster.elect((1, 2))
    await cluster.tell(1, 2, 3)
    await leader.produce("the delete, and what follows")
    before = third.partition.log
    leader.partition.log.note_cleaned(cleaned_to=2, deletes_dropped_to=2)
    started_over = list[int]()
    start_over = before.start_over

    def note(offset: int) -> None:
        started_over.append(offset)
        start_over(offset)

    before.start_over = note  # type: ignore[method-assign]
    third.links.mend()
    await until(lambda: third.partition.log.durable_offset == 2)

    assert started_over == [0]
    assert bytes_of(third) == bytes_of(leader)
    assert third.partition.log.deletes_dropped_to == 2


async def test_a_follower_with_a_disk_that_refuses_goes_on_once_it_accepts() -> None:
    cluster = Replicated()
    third = cluster.nodes[3]
    assert isinstance(third.files, FaultyFiles)
    await cluster.create()
    leader = cluster.nodes[1]

    def fault(operation: str, path: object) -> None:
        if operation == "write":
            raise OSError(28, "No space left on device", str(path))

    third.files.fault = fault
    producing = asyncio.ensure_future(leader.produce("x"))
    await until(lambda: (TOPIC, 0) in third.broker.replicas._reasons)
    assert not producing.done()

    third.files.heal()
    cluster.elect((1, 2))  # as after a fence, so that nobody waits for its next attempt
    await cluster.tell(1, 2)
    assert (await producing).error_code == ErrorCode.NONE
    cluster.elect((2,))
    await cluster.tell(2, 3)
    await until(lambda: third.partition.log.durable_offset == 1)
    await until(lambda: (TOPIC, 0) not in third.broker.replicas._reasons)
    await cluster.close()


async def test_a_leader_whose_disk_fails_resigns_and_follows_the_next() -> None:
    cluster = Replicated()
    await cluster.create()
    first, second, third = cluster.nodes.values()
    await first.produce("kept")

    def fault(operation: str, path: object) -> None:
        if operation == "sync":
            raise OSError(5, "Input/output error", str(path))

    first.files.fault = fault
    producing = asyncio.ensure_future(first.produce("on two disks of three"))
    await until(lambda: first.partition.is_offline)
    first.files.heal()
    first.broker.coordination = Coordination(first.broker, Random())
    recovery = PartitionRecovery(first.broker)
    failed = first.partition
    await recovery.recover(cluster.clock.now_ms())
    assert first.partition is failed, "it is not opened again in its epoch"

    await until(lambda: cluster.state.leader == 2)
    cluster.clock.advance(60_000)
    await until(lambda: first.partition.leader is None)
    await recovery.recover(cluster.clock.now_ms())
    await second.produce("of the next epoch", acks=1)
    await until(lambda: bytes_of(first) == bytes_of(second) == bytes_of(third))

    assert (await producing).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.state.leader_epoch == 1
    assert values(first)[0] == b"kept" and values(first)[-1] == b"of the next epoch"
    await cluster.close()


async def test_a_produce_that_followers_do_not_confirm_in_time_is_answered(
    cluster: Replicated,
) -> None:
    leader, _, third = cluster.nodes.values()
    third.links.cut(1)

    late = await leader.produce("late", timeout_ms=50)
    third.links.mend()
    in_time = await leader.produce("in time", timeout_ms=60_000)

    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert in_time.error_code == ErrorCode.NONE
    assert values(third) == [b"late", b"in time"]


async def test_a_follower_without_news_asks_less_often_and_gets_news_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_fetcher, "WAIT_MS", 1)
    monkeypatch.setattr(replica_fetcher, "IDLE_WAIT_MS", FOR_EVER_MS)
    cluster = Replicated()
    waits = list[int]()
    monkeypatch.setattr(Links, "poll", noting_waits(waits))
    await cluster.create()

    await until(lambda: waits[-2:] == [FOR_EVER_MS] * 2)  # both followers
    assert set(waits) == {1, FOR_EVER_MS}
    waits.clear()
    await cluster.nodes[1].produce("x")

    assert waits[0] == 1
    await until(lambda: waits[-2:] == [FOR_EVER_MS] * 2)
    assert [node.partition.high_watermark for node in cluster.nodes.values()] == [1, 1, 1]
    await cluster.close()


async def test_a_high_watermark_is_told_within_half_a_second_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("WAIT_MS", "IDLE_WAIT_MS"):
        monkeypatch.setattr(replica_fetcher, name, FOR_EVER_MS)
    monkeypatch.setattr(replica_fetches, "MARKS_WAIT_MS_MAX", 1)
    cluster = Replicated()
    await cluster.create()
    leader, *followers = cluster.nodes.values()

    await leader.produce("x")

    await until(lambda: any(each.partition.high_watermark for each in followers))
    await cluster.close()


def noting_waits(waits: list[int]) -> Any:
    """Returns how followers ask, with a note of the wait in each request."""
    poll = Links.poll

    async def noting(links: Links, node_id: int, request: Any, *, wait_ms: int) -> Any:
        waits.append(request.max_wait_ms)
        return await poll(links, node_id, request, wait_ms=wait_ms)

    return noting
