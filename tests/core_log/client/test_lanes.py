"""Sequences follow each other; a batch is sent again as it was, and never too far ahead."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from core_log.batch import Batch, BatchHeader
from core_log.client.cluster import Cluster
from core_log.client.lanes import SEQUENCE_MASK, Lane, ProducerIdentity
from core_log.client.retrying import TryAgain
from core_log.errors import LogUnavailable, OutOfOrderSequence
from core_log.plain_records import PlainRecord, encode_batch
from tests.core_log.client.scripted_cluster import ScriptedCluster

Send = Callable[[memoryview], Awaitable[int]]


def batch(records: int = 1) -> Batch:
    record = PlainRecord(b"k", b"v", timestamp_ms=1)
    return Batch(bytearray(encode_batch([record] * records)), records)


@pytest.fixture
def cluster() -> Cluster:
    return ScriptedCluster().log()._cluster


class Partition:
    """The other end: takes batches in order of their sequences, remembers the last five."""

    def __init__(self) -> None:
        self.next_sequence = self.end = 0
        self.recent: list[tuple[int, int]] = []
        self.received: list[int] = []
        self.lose: set[int] = set()  # numbers of receptions whose answer is lost
        self.drop: set[int] = set()  # and of those that do not even arrive

    async def send(self, data: memoryview) -> int:
        header, number = BatchHeader.read(data), len(self.received)
        self.received.append(header.base_sequence)
        await asyncio.sleep(0)
        if number in self.drop:
            raise TryAgain("lost")
        offset = self._append(header)
        if number in self.lose:
            raise TryAgain("answer lost")
        return offset

    def _append(self, header: BatchHeader) -> int:
        for sequence, offset in self.recent:
            if sequence == header.base_sequence:
                return offset
        if header.base_sequence != self.next_sequence:
            raise OutOfOrderSequence("not the next one")
        offset, self.end = self.end, self.end + header.record_count
        self.next_sequence = (header.last_sequence + 1) & SEQUENCE_MASK
        self.recent = [*self.recent, (header.base_sequence, offset)][-5:]
        return offset


async def append(lane: Lane, send: Send, records: int = 1) -> int:
    return await lane.append(batch(records), send, is_transactional=True)


async def test_sequences_count_records(cluster: Cluster) -> None:
    lane, partition = Lane(ProducerIdentity(5, 2), cluster), Partition()

    offsets = [await append(lane, partition.send, records) for records in (3, 1, 2)]

    assert partition.received == [0, 3, 4]
    assert offsets == [0, 3, 4]


async def test_batches_carry_the_writers_identity(cluster: Cluster) -> None:
    lane, sent = Lane(ProducerIdentity(5, 2), cluster), list[BatchHeader]()

    async def send(data: memoryview) -> int:
        sent.append(BatchHeader.read(data))
        return 0

    await append(lane, send)

    (header,) = sent
    assert (header.producer_id, header.producer_epoch) == (5, 2)
    assert header.is_transactional


async def test_sequences_begin_again_at_zero_after_the_last(cluster: Cluster) -> None:
    lane, partition = Lane(ProducerIdentity(5, 2), cluster), Partition()
    lane._next_sequence = partition.next_sequence = SEQUENCE_MASK

    offsets = [await append(lane, partition.send), await append(lane, partition.send)]

    assert partition.received == [SEQUENCE_MASK, 0]
    assert offsets == [0, 1]


@pytest.mark.parametrize("fault", ["lose", "drop"])
@pytest.mark.parametrize("k", [2, 3, 5, 6])
async def test_every_batch_arrives_once_and_in_order(cluster: Cluster, fault: str, k: int) -> None:
    lane, partition = Lane(ProducerIdentity(5, 2), cluster), Partition()
    setattr(partition, fault, set(range(k - 1, 1000, k)))

    offsets = await asyncio.gather(*(append(lane, partition.send) for _ in range(30)))

    assert offsets == list(range(30))
    assert partition.end == 30


async def test_no_batch_runs_more_than_five_ahead_of_the_oldest(cluster: Cluster) -> None:
    lane, under_way = Lane(ProducerIdentity(5, 2), cluster), list[int]()
    release = asyncio.Event()

    async def send(data: memoryview) -> int:
        under_way.append(BatchHeader.read(data).base_sequence)
        if under_way[-1] == 0:
            await release.wait()
        return 0

    appends = [asyncio.ensure_future(append(lane, send)) for _ in range(9)]
    for _ in range(20):
        await asyncio.sleep(0)
    ahead = list(under_way)
    release.set()
    await asyncio.gather(*appends)

    assert ahead == [0, 1, 2, 3, 4]
    assert under_way == list(range(9))


async def test_a_gap_below_the_oldest_batch_is_final(cluster: Cluster) -> None:
    """The log has lost something, so nothing that follows may be appended."""
    lane, partition = Lane(ProducerIdentity(5, 2), cluster), Partition()
    partition.next_sequence = 7

    with pytest.raises(OutOfOrderSequence):
        await append(lane, partition.send)


async def test_a_lost_batch_takes_those_behind_it_along(cluster: Cluster) -> None:
    lane, partition = Lane(ProducerIdentity(5, 2), cluster), Partition()

    async def send(data: memoryview) -> int:
        if BatchHeader.read(data).base_sequence == 0:
            raise TryAgain("never")
        return await partition.send(data)

    results = await asyncio.gather(*(append(lane, send) for _ in range(3)), return_exceptions=True)

    assert isinstance(results[0], LogUnavailable)
    assert all(isinstance(result, OutOfOrderSequence | LogUnavailable) for result in results[1:])
    assert partition.end == 0
