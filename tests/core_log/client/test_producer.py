"""Sequences follow each other; a batch is sent again as it was, and never too far ahead."""

import asyncio
from collections.abc import Mapping
from random import Random

import pytest

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.producer import (
    SEQUENCE_MASK,
    BatchResult,
    ProducerIdAndEpoch,
    ProducerSequences,
    Sealed,
    SendBatches,
)
from headwater.core_log.foundation.errors import BatchTooLarge, LogUnavailable, OutOfOrderSequence
from headwater.core_log.links.connection import RetriableFailure
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch, BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from tests.core_log.client.scripted_cluster import ScriptedCluster

HOME, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(records: int = 1) -> Batch:
    record = PlainRecord(b"k", b"v", timestamp_ms=1)
    return Batch(bytearray(encode_batch([record] * records)), records)


@pytest.fixture
def cluster() -> Cluster:
    return ScriptedCluster().log()._cluster


class Partition:
    """The other end: takes batches in order of their sequences, remembers the last five."""

    def __init__(self) -> None:
        self.next_sequence: int | None = 0
        """None for whatever comes first."""
        self.end = 0
        self.recent: list[tuple[int, int]] = []
        self.received: list[int] = []
        self.lose: set[int] = set()  # numbers of receptions whose answer is lost
        self.drop: set[int] = set()  # and of those that do not even arrive

    async def send(self, batches: Sealed) -> Mapping[TopicPartition, BatchResult]:
        (data,) = batches.values()
        await asyncio.sleep(0)
        return {partition: self.take(data) for partition in batches}

    def take(self, data: memoryview) -> BatchResult:
        header, number = BatchHeader.read(data), len(self.received)
        self.received.append(header.base_sequence)
        if number in self.drop:
            return RetriableFailure("lost")
        try:
            offset = self._append(header)
        except OutOfOrderSequence as error:
            return error
        return RetriableFailure("answer lost") if number in self.lose else offset

    def _append(self, header: BatchHeader) -> int:
        for sequence, offset in self.recent:
            if sequence == header.base_sequence:
                return offset
        if self.next_sequence not in (None, header.base_sequence):
            raise OutOfOrderSequence("not the next one")
        offset, self.end = self.end, self.end + header.record_count
        self.next_sequence = (header.last_sequence + 1) & SEQUENCE_MASK
        self.recent = [*self.recent, (header.base_sequence, offset)][-5:]
        return offset


async def append(lanes: ProducerSequences, send: SendBatches, records: int = 1) -> int:
    return (await lanes.append({HOME: batch(records)}, send))[HOME]


async def test_sequences_count_records(cluster: Cluster) -> None:
    lanes, partition = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), Partition()

    offsets = [await append(lanes, partition.send, records) for records in (3, 1, 2)]

    assert partition.received == [0, 3, 4]
    assert offsets == [0, 3, 4]


async def test_batches_carry_the_writers_identity(cluster: Cluster) -> None:
    lanes, sent = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), list[BatchHeader]()

    async def send(batches: Sealed) -> Mapping[TopicPartition, BatchResult]:
        sent.append(BatchHeader.read(batches[HOME]))
        return {HOME: 0}

    await append(lanes, send)

    (header,) = sent
    assert (header.producer_id, header.producer_epoch) == (5, 2)
    assert header.is_transactional


async def test_sequences_begin_again_at_zero_after_the_last(cluster: Cluster) -> None:
    lanes, partition = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), Partition()
    lanes._lane(HOME).next_sequence = partition.next_sequence = SEQUENCE_MASK

    offsets = [await append(lanes, partition.send), await append(lanes, partition.send)]

    assert partition.received == [SEQUENCE_MASK, 0]
    assert offsets == [0, 1]


@pytest.mark.parametrize("fault", ["lose", "drop"])
@pytest.mark.parametrize("k", [2, 3, 5, 6])
async def test_every_batch_arrives_once_and_in_order(cluster: Cluster, fault: str, k: int) -> None:
    lanes, partition = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), Partition()
    setattr(partition, fault, set(range(k - 1, 1000, k)))

    offsets = await asyncio.gather(*(append(lanes, partition.send) for _ in range(30)))

    assert offsets == list(range(30))
    assert partition.end == 30


async def test_no_batch_runs_more_than_five_ahead_of_the_oldest(cluster: Cluster) -> None:
    lanes, under_way = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), list[int]()
    release = asyncio.Event()

    async def send(batches: Sealed) -> Mapping[TopicPartition, BatchResult]:
        under_way.append(BatchHeader.read(batches[HOME]).base_sequence)
        if under_way[-1] == 1:
            await release.wait()
        return {HOME: 0}

    await append(lanes, send)
    appends = [asyncio.ensure_future(append(lanes, send)) for _ in range(9)]
    for _ in range(20):
        await asyncio.sleep(0)
    ahead = list(under_way)
    release.set()
    await asyncio.gather(*appends)

    assert ahead == [0, 1, 2, 3, 4, 5]
    assert under_way == list(range(10))


async def test_a_gap_below_the_oldest_batch_is_final(cluster: Cluster) -> None:
    """The log has lost something, so nothing that follows may be appended."""
    lanes, partition = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), Partition()
    partition.next_sequence = 7

    with pytest.raises(OutOfOrderSequence):
        await append(lanes, partition.send)


async def test_a_lost_batch_takes_those_behind_it_along() -> None:
    cluster = ScriptedCluster().log(retry_for_ms=20)._cluster
    lanes, partition = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), Partition()

    async def send(batches: Sealed) -> Mapping[TopicPartition, BatchResult]:
        if BatchHeader.read(batches[HOME]).base_sequence == 0:
            raise RetriableFailure("never")
        return await partition.send(batches)

    results = await asyncio.gather(*(append(lanes, send) for _ in range(3)), return_exceptions=True)

    assert isinstance(results[0], LogUnavailable)
    assert all(isinstance(result, OutOfOrderSequence | LogUnavailable) for result in results[1:])
    assert partition.end == 0


class Partitions:
    """Several, which answer one request together."""

    def __init__(self, *names: TopicPartition) -> None:
        self.partitions = {name: Partition() for name in names}
        self.requests: list[set[TopicPartition]] = []

    async def send(self, batches: Sealed) -> Mapping[TopicPartition, BatchResult]:
        self.requests.append(set(batches))
        await asyncio.sleep(0)
        return {name: self.partitions[name].take(data) for name, data in batches.items()}


async def test_batches_of_several_partitions_set_out_together(cluster: Cluster) -> None:
    lanes, log = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), Partitions(HOME, ELSEWHERE)

    first = await lanes.append({HOME: batch(3), ELSEWHERE: batch(1)}, log.send)
    second = await lanes.append({ELSEWHERE: batch(1), HOME: batch(1)}, log.send)

    assert log.requests == [{HOME, ELSEWHERE}] * 2
    assert first == {HOME: 0, ELSEWHERE: 0}
    assert second == {HOME: 3, ELSEWHERE: 1}


async def test_a_batch_that_the_log_has_is_not_sent_again_with_one_that_failed(
    cluster: Cluster,
) -> None:
    lanes, log = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), Partitions(HOME, ELSEWHERE)
    log.partitions[ELSEWHERE].drop = {0}

    offsets = await lanes.append({HOME: batch(), ELSEWHERE: batch()}, log.send)

    assert log.requests == [{HOME, ELSEWHERE}, {ELSEWHERE}]
    assert offsets == {HOME: 0, ELSEWHERE: 0}


async def test_a_refusal_for_good_is_said_before_what_may_still_come(cluster: Cluster) -> None:
    lanes = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster)

    async def send(batches: Sealed) -> Mapping[TopicPartition, BatchResult]:
        return {HOME: RetriableFailure("later"), ELSEWHERE: BatchTooLarge("never")}

    with pytest.raises(BatchTooLarge):
        await lanes.append({HOME: batch(), ELSEWHERE: batch()}, send)


@pytest.mark.parametrize("seed", range(40))
async def test_every_partition_has_its_batches_once_and_in_order_whatever_is_lost(
    cluster: Cluster, seed: int
) -> None:
    random = Random(seed)
    names = [TopicPartition("t", number) for number in range(3)]
    lanes, log = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), Partitions(*names)
    for partition in log.partitions.values():
        partition.lose = set(random.sample(range(60), 6))
        partition.drop = set(random.sample(range(60), 6))
    groups = [random.sample(names, random.randint(1, 3)) for _ in range(30)]

    offsets = await asyncio.gather(
        *(lanes.append({name: batch() for name in group}, log.send) for group in groups)
    )

    for name in names:
        theirs = [said[name] for said in offsets if name in said]
        assert theirs == list(range(sum(name in group for group in groups)))
        assert log.partitions[name].end == len(theirs)


@pytest.mark.parametrize("why", ["held up elsewhere", "the leader has to be looked up first"])
async def test_nothing_is_the_first_of_a_partition_but_what_was_appended_first(
    cluster: Cluster, why: str
) -> None:
    """A log that has nothing of a writer in a partition takes any sequence, as it may have deleted
    what came before, and would refuse for good what is sent later but was appended first."""
    lanes, log = ProducerSequences(ProducerIdAndEpoch(5, 2), cluster), Partitions(HOME, ELSEWHERE)
    for partition in log.partitions.values():
        partition.next_sequence = None
    if why == "held up elsewhere":
        log.partitions[ELSEWHERE].drop = {0}

    async def send(batches: Sealed) -> Mapping[TopicPartition, BatchResult]:
        if len(batches) > 1:
            await asyncio.sleep(0.01)
        return await log.send(batches)

    appends = [{ELSEWHERE: batch()}, {HOME: batch(), ELSEWHERE: batch()}, {HOME: batch()}]
    found = [asyncio.ensure_future(lanes.append(appends[0], send))]
    for _ in range(3):
        await asyncio.sleep(0)
    found += [asyncio.ensure_future(lanes.append(each, send)) for each in appends[1:]]

    assert await asyncio.gather(*found) == [{ELSEWHERE: 0}, {HOME: 0, ELSEWHERE: 1}, {HOME: 1}]
