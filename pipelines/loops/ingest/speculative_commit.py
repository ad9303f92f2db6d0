"""Predicts the offsets of a transaction, so that its boundary is sent together with its last
records."""

from collections.abc import Iterable, Mapping

from headwater.core_log.model.changes import ChangeBatch
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.journal.commits import OffsetRange
from headwater.pipelines.loops.ingest.encoder import PartitionBatch

MARKER_RECORDS = 1
"""Offsets that the end of a transaction takes in every partition that it wrote to."""
KEPT_BYTES_MAX = 1 << 20
"""Bytes of a transaction that are kept for a second attempt; larger ones are not kept."""

Touched = Mapping[TopicPartition, OffsetRange]


class OffsetMispredicted(Exception):
    """Somebody else appended at predicted offsets of a transaction, which is aborted."""


class SpeculativeCommit:
    """The predictions of one writer, and the batches of its present transaction.

    In a partition with one writer a transaction begins at the former one's end. A partition with
    other writers is never predicted again. A transaction is only predicted if all its batches are
    kept, because it is aborted and written again after a misprediction.
    """

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._shared: set[TopicPartition] = set()
        self.batches: list[ChangeBatch] = []
        """The batches of this transaction; none if they are many."""
        self._kept_bytes = 0

    def begin(self) -> None:
        self.batches, self._kept_bytes = [], 0

    def keep(self, batch: ChangeBatch) -> None:
        if self._kept_bytes >= KEPT_BYTES_MAX:
            return
        self._kept_bytes += sum(changes.rows.nbytes for changes in batch.tables)
        self._kept_bytes += sum(each.keys.nbytes + each.values.nbytes for each in batch.notices)
        if batch.rejects or self._kept_bytes >= KEPT_BYTES_MAX:  # rejected rows may have any size
            self.keep_nothing()
        else:
            self.batches.append(batch)

    def keep_nothing(self) -> None:
        """Stops keeping batches. The transaction is written once, so its boundary waits for the
        real offsets."""
        self.batches, self._kept_bytes = [], KEPT_BYTES_MAX

    def predict(self, appended: Touched, unsent: Iterable[PartitionBatch]) -> Touched | None:
        """Returns the offsets of the transaction once these batches are sent; None if they cannot
        be predicted."""
        if not self.batches:
            return None
        found = dict(appended)
        for partition, batch, is_data in unsent:
            if not is_data:
                continue
            earlier = found.get(partition)
            first = earlier.end if earlier else self._next.get(partition)
            if first is None or partition in self._shared:
                return None
            add_batch(found, partition, batch.record_count, len(batch.data), first)
        return found

    def check(self, predicted: Touched, appended: Touched) -> None:
        wrong = [each for each, offsets in appended.items() if predicted[each] != offsets]
        if wrong:
            self._shared.update(wrong)
            self._next.clear()  # the aborted transaction leaves its markers everywhere
            raise OffsetMispredicted

    def note_commit(self, touched: Touched) -> None:
        for partition, offsets in touched.items():
            if partition not in self._shared:
                self._next[partition] = offsets.end + MARKER_RECORDS


def add_batch(
    touched: dict[TopicPartition, OffsetRange],
    partition: TopicPartition,
    records: int,
    size: int,
    first: int,
) -> None:
    offsets = OffsetRange(first, first + records, records, size)
    earlier = touched.get(partition)
    touched[partition] = earlier.extend_to(offsets) if earlier else offsets
