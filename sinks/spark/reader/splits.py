"""Divides stretches of the log into parts that executors read side by side."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.sinks.sink import AppliedOffset, AppliedOffsets


@dataclass(frozen=True, slots=True)
class Split:
    """A stretch of one partition, as `SplitReader.read` takes it. Made to be pickled."""

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
    """Parts of at most so many offsets. `bounds` say what is still there: nothing is spent on
    offsets below."""
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
    """Of equal length, so that none is done long before the others."""
    length = max(end - start, 0)
    count = -(-length // records)
    for number in range(count):
        yield Split(
            partition,
            topic_id,
            start + length * number // count,
            start + length * (number + 1) // count,
        )
