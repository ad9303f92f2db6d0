"""Splits of the log that executors read in parallel."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.sinks.sink import AppliedOffset, AppliedOffsets


@dataclass(frozen=True, slots=True)
class Split:
    """An offset range of one partition, as `SplitReader.read` takes it. It is pickled."""

    partition: TopicPartition
    topic_id: str
    start: int
    end: int

    @property
    def starts(self) -> AppliedOffsets:
        return {self.partition: AppliedOffset(self.topic_id, self.start)}

    @property
    def ends(self) -> AppliedOffsets:
        return {self.partition: AppliedOffset(self.topic_id, self.end)}


def splits_of(
    start: AppliedOffsets,
    end: AppliedOffsets,
    bounds: Mapping[TopicPartition, Bounds],
    *,
    records: int,
) -> list[Split]:
    """Returns splits of at most this many offsets. `bounds` are the existing offsets; lower ones
    are left out."""
    return [
        split
        for partition in sorted(end)
        for split in _divide(
            partition,
            end[partition].topic_id,
            max(start[partition].next_offset, bounds[partition].start),
            end[partition].next_offset,
            records,
        )
    ]


def _divide(
    partition: TopicPartition, topic_id: str, start: int, end: int, records: int
) -> Iterator[Split]:
    """Returns splits of equal length, so that all take about equally long."""
    length = max(end - start, 0)
    count = -(-length // records)
    for number in range(count):
        yield Split(
            partition,
            topic_id,
            start + length * number // count,
            start + length * (number + 1) // count,
        )
