"""A replica that is copied while deletes, or ends of transactions, are dropped: no value comes back
that was deleted or aborted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.core_log.broker import replica_fetcher
from headwater.core_log.broker.replica_fetcher import ReplicaCopy
from headwater.core_log.protocol.inter_broker_messages import ReplicaFetchPartitionResponse
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, decode_batch, encode_batch
from headwater.core_log.replication.follower import FollowerFetch
from tests.builders import START_MS, values_of
from tests.core_log.broker.replicated import Node, Replicated
from tests.core_log.broker.test_replica_fetcher import until
from tests.core_log.broker.test_replicated_compaction import SETTINGS, cleaner_of, put

pytestmark = pytest.mark.slow

THIRD, PRODUCER = 3, 99


@pytest.fixture(params=["deleted", "aborted"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Replicated]:
    """The third has nothing, and is away. The others have a value and, much later, its end."""
    is_deleted = request.param == "deleted"
    cluster = Replicated()
    await cluster.create(**SETTINGS)
    leader = cluster.nodes[1]
    leave(cluster)
    await cluster.tell(1, 2, 3)
    if is_deleted:
        await put(leader, "gone", "secret")
    else:
        await put_in_a_transaction(leader, "gone")
    for number in range(6):
        await put(leader, f"kept {number}", "value")
    if is_deleted:
        await put(leader, "gone", None)
    else:
        end_transaction(leader, commit=False)
        await put_in_a_transaction(leader, "later", sequence=1)
        end_transaction(leader, commit=True)
    for number in range(6, 10):
        await put(leader, f"kept {number}", "value")
    yield cluster
    await cluster.close()


async def put_in_a_transaction(node: Node, key: str, *, sequence: int = 0) -> None:
    record = PlainRecord(key.encode(), b"secret", timestamp_ms=START_MS)
    data = encode_batch(
        [record],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    partition = node.partition
    partition.log.append(memoryview(data), BatchHeader.read(data), leader_epoch=0, now_ms=START_MS)
    partition.on_written(is_urgent=True)
    await partition.wait_committed(partition.log.end_offset)


def end_transaction(node: Node, *, commit: bool) -> None:
    node.partition.append_marker(PRODUCER, 0, commit=commit, coordinator_epoch=0, now_ms=START_MS)


def leave(cluster: Replicated) -> None:
    cluster.nodes[THIRD].links.cut(1, 2)
    cluster.commit(cluster.controller.fence_broker(THIRD))


async def come_back(cluster: Replicated) -> None:
    third = cluster.nodes[THIRD]
    third.links.mend()
    cluster.register(third)
    await cluster.tell(1, 2, 3)


async def lead(cluster: Replicated, node_id: int) -> None:
    cluster.elect((1, 2), alive=(node_id,))
    await cluster.tell(1, 2, 3)


async def drop_ends(node: Node) -> None:
    """The first time finds the value, later ones its end."""
    for later_ms in range(4):
        for number in range(4):
            await put(node, f"more {number}", "value")
        await cleaner_of(node).clean_what_is_due(START_MS + later_ms)


def contents(node: Node) -> dict[bytes, bytes | None]:
    """As who reads what is committed sees it."""
    log, found = node.partition.log, dict[bytes, bytes | None]()
    aborted = log.find_aborted(0, log.end_offset)
    for batch in log.batches(log.start_offset):
        header, records = decode_batch(bytes(batch))
        is_aborted = any(
            header.producer_id == each.producer_id
            and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
        if not header.is_control and not is_aborted:
            found |= {each.key: each.value for each in records if each.key is not None}
    return found


def markers(node: Node) -> list[int]:
    log = node.partition.log
    headers = [BatchHeader.read(each) for each in log.batches(log.start_offset)]
    return [each.base_offset for each in headers if each.is_control and each.record_count]


def unstable(node: Node) -> int | None:
    return node.partition.log.producers.first_unstable_offset()


async def copy_the_value_alone(cluster: Replicated, patch: pytest.MonkeyPatch) -> None:
    """As of a large partition of which only the beginning has come."""
    third = cluster.nodes[THIRD]
    with patch.context() as small:
        small.setattr(replica_fetcher, "PARTITION_BYTES_MAX", 200)
        await come_back(cluster)
        await until(lambda: third.partition.log.end_offset > 2)
        leave(cluster)
    await cluster.tell(1, 2, 3)
    assert [offset for offset, _ in values_of(third.partition.log)][:1] == [0]
    assert third.partition.log.end_offset < 7


async def test_a_copy_that_goes_on_from_another_leader_brings_no_value_back(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one has dropped its end, and the other still has the value."""
    first, _, third = cluster.nodes.values()
    await drop_ends(first)
    await lead(cluster, 2)

    await copy_the_value_alone(cluster, monkeypatch)
    await lead(cluster, 1)
    await come_back(cluster)
    await until(lambda: THIRD in cluster.state.in_sync)

    assert b"gone" not in contents(first) and 7 not in markers(first)
    assert (contents(third), unstable(third)) == (contents(first), None)


async def test_a_copy_that_goes_on_after_a_break_brings_no_value_back(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader dropped meanwhile what it had told before that it may drop."""
    first, second, third = cluster.nodes.values()
    await drop_ends(first)
    await lead(cluster, 2)

    await copy_the_value_alone(cluster, monkeypatch)
    await drop_ends(second)
    await come_back(cluster)
    await until(lambda: THIRD in cluster.state.in_sync)

    assert b"gone" not in contents(second) and 7 not in markers(second)
    assert (contents(third), unstable(third)) == (contents(second), None)


async def test_a_copy_that_goes_on_by_the_marks_alone_is_found(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it did before leaders counted how often they had dropped any."""

    def may_lack_ends(self: ReplicaCopy, line: ReplicaFetchPartitionResponse) -> bool:
        log, dropped_to = self.partition.log, line.deletes_dropped_to
        is_news = dropped_to > log.deletes_dropped_to and dropped_to > log.end_offset
        return is_news and log.end_offset > log.start_offset

    monkeypatch.setattr(ReplicaCopy, "_may_lack_ends", may_lack_ends)

    with pytest.raises(AssertionError, match="gone"):
        await test_a_copy_that_goes_on_after_a_break_brings_no_value_back(cluster, monkeypatch)


async def test_a_copy_goes_on_after_an_answer_with_a_high_watermark_alone(
    cluster: Replicated,
) -> None:
    """Such an answer does not say how often deletes were dropped."""
    first, _, third = cluster.nodes.values()
    partition = third.partition
    follower = partition.follower
    assert follower is not None
    copy = ReplicaCopy(partition, follower, is_in_sync=False)
    fetch = FollowerFetch(0, -1, follower.leader_epoch)
    batches = [memoryview(bytes(each)) for each in first.partition.log.batches(0)]
    compacted = {"cleaned_to": 9, "deletes_dropped_to": 9, "drops": 2}

    for records in (batches[0], None, batches[1]):
        told: dict[str, Any] = compacted if records else {}
        line = ReplicaFetchPartitionResponse(
            high_watermark=9, log_start_offset=0, records=records, **told
        )
        copy.take(fetch, line, now_ms=START_MS)

    assert (partition.log.start_offset, partition.log.end_offset) == (0, 2)


async def test_a_follower_in_sync_does_not_begin_anew(cluster: Replicated) -> None:
    """Others rely on what it has. Only after an unclean election it may lack an end."""
    second = cluster.nodes[2].partition
    follower = second.follower
    assert follower is not None
    before = second.log.end_offset
    copy = ReplicaCopy(second, follower, is_in_sync=True)
    fetch = FollowerFetch(before, 0, follower.leader_epoch)
    line = ReplicaFetchPartitionResponse(
        high_watermark=99, log_start_offset=0, cleaned_to=99, deletes_dropped_to=99, drops=7
    )

    is_taken = copy.take(fetch, line, now_ms=START_MS)

    assert (is_taken, second.log.start_offset, second.log.end_offset) == (False, 0, before)
