"""Where records will be in the log, said before the log has answered where they are."""

from collections.abc import Iterable, Mapping

from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.journal.commits import OffsetRange
from headwater.pipelines.loops.ingest.encoder import PartitionBatch

MARKER_RECORDS = 1
"""What the end of a transaction takes in every partition that it wrote to."""

Touched = Mapping[TopicPartition, OffsetRange]


class OffsetMispredicted(Exception):
    """Somebody else appended where records of a transaction were foreseen, which is aborted."""


class OffsetPrediction:
    """Of partitions that only we append to: there one transaction begins where the last ended. A
    partition that somebody else was seen to append to is never foreseen again."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._shared: set[TopicPartition] = set()

    def of(self, landed: Touched, under_way: Iterable[PartitionBatch]) -> Touched | None:
        """What a transaction will have touched once these have landed as well; None where that
        cannot be said."""
        found = dict(landed)
        for partition, batch, is_data in under_way:
            if not is_data:
                continue
            earlier = found.get(partition)
            first = earlier.end if earlier else self._next.get(partition)
            if first is None or partition in self._shared:
                return None
            stretch = stretch_of(batch.record_count, len(batch.data), first)
            found[partition] = earlier.extend_to(stretch) if earlier else stretch
        return found

    def check(self, foreseen: Touched, landed: Touched) -> None:
        displaced = [each for each, stretch in landed.items() if foreseen[each] != stretch]
        if displaced:
            self._shared.update(displaced)
            self._next.clear()  # the aborted transaction leaves its markers everywhere
            raise OffsetMispredicted

    def note_commit(self, touched: Touched) -> None:
        for partition, stretch in touched.items():
            if partition not in self._shared:
                self._next[partition] = stretch.end + MARKER_RECORDS


def stretch_of(records: int, size: int, first: int) -> OffsetRange:
    return OffsetRange(first, first + records, records, size)
