"""Deleted rows in the log: their last values, and their delete times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.rows.digests import Digests
from headwater.pipelines.journal.generations import carried_marks
from headwater.sinks.fold import newest_of_digests

THERE = np.iinfo(np.int64).min
"""Stands for no delete time: the row exists."""


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """The remaining changes of one partition; a key's are in log order."""

    keys: Digests
    rows: Digests
    offsets: Int64Array
    is_row: BoolArray
    """False if the log has only the delete of the row."""
    ends_us: Int64Array
    """The time of the row's last change if that was a delete, or `THERE`."""
    is_bound: BoolArray
    """Whether it may have been deleted earlier: topics with another key tell only the latest
    time."""

    def upto(self, offset: int) -> "PartitionChanges":
        end = int(np.searchsorted(self.offsets, offset))
        return self.take(slice(0, end))

    def take(self, places: Int64Array | BoolArray | slice) -> "PartitionChanges":
        return PartitionChanges(
            self.keys[places],
            self.rows[places],
            self.offsets[places],
            self.is_row[places],
            self.ends_us[places],
            self.is_bound[places],
        )


NOTHING = PartitionChanges(
    np.zeros(0, np.uint64),
    np.zeros(0, np.uint64),
    np.zeros(0, np.int64),
    np.zeros(0, np.bool_),
    np.zeros(0, np.int64),
    np.zeros(0, np.bool_),
)


def partition_changes(changes: TableChanges, keys: Digests, rows: Digests) -> PartitionChanges:
    assert changes.log_offsets is not None, "changes of the log have offsets"
    is_row = changes.operations.to_numpy() != Operation.DELETE
    ends_us = np.where(is_row, THERE, changes.committed_us.to_numpy())
    return PartitionChanges(keys, rows, changes.log_offsets.to_numpy(), is_row, ends_us, ~is_row)


def fold(parts: Sequence[PartitionChanges], *, keeps_deleted: bool) -> PartitionChanges:
    """Returns one change of each key, by digest: the newest row; or the last row with its first
    delete; or the first delete without a row."""
    if not parts:
        return NOTHING
    whole = concat_parts(parts)
    if not len(whole.keys):
        return NOTHING
    if not keeps_deleted:
        newest = newest_of_digests(whole.keys)
        return whole.take(newest[whole.is_row[newest]])
    whole = whole.take(np.argsort(whole.keys, kind="stable"))
    begins = np.flatnonzero(np.append(True, whole.keys[1:] != whole.keys[:-1]))
    return _with_ends(whole, begins)


def concat_parts(parts: Sequence[PartitionChanges]) -> PartitionChanges:
    return PartitionChanges(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.is_row for part in parts]),
        np.concatenate([part.ends_us for part in parts]),
        np.concatenate([part.is_bound for part in parts]),
    )


def _with_ends(whole: PartitionChanges, begins: Int64Array) -> PartitionChanges:
    """`whole` is in key order; each key begins at one of these places."""
    count = len(whole.keys)
    at, lengths = np.arange(count), np.diff(np.append(begins, count))
    last = np.maximum.reduceat(np.where(whole.is_row, at, -1), begins)
    is_gone = (whole.ends_us != THERE) & (at >= np.repeat(last, lengths))
    first = np.minimum.reduceat(np.where(is_gone, at, count), begins)
    is_row, end = last >= 0, np.minimum(first, count - 1)
    chosen = whole.take(np.where(is_row, last, end))
    ends_us = np.where(first < count, whole.ends_us[end], THERE)
    is_plain = is_row & ~whole.is_row[end]  # the first delete after a known row counts
    is_bound = np.where(is_plain, False, whole.is_bound[end]) & (first < count)
    return replace(chosen, ends_us=ends_us, is_bound=is_bound)


def truncate(part: PartitionChanges, *, committed_us: int) -> PartitionChanges:
    """Returns the state after a truncate. Compaction may have removed an earlier one."""
    is_there = part.ends_us == THERE
    return replace(
        part,
        ends_us=np.where(is_there, committed_us, part.ends_us),
        is_bound=part.is_bound | is_there,
    )


async def cleaned_to(
    log: Log, pipeline: str, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Returns offsets below which the log may lack changes; no bound if the log does not report
    it."""
    bounds, marks = await log.bounds(partitions), await carried_marks(log, pipeline, partitions)
    unknown = np.iinfo(np.int64).max
    return {
        part: unknown
        if bound.cleaned_to < 0
        else max(bound.cleaned_to, bound.start, marks.get(part, 0))
        for part, bound in bounds.items()
    }


def ends_in(rows: pa.RecordBatch, column: str) -> Int64Array:
    """Returns the delete times of a target's rows, as `Piece` has them."""
    found: Int64Array = rows.column(column).cast(pa.int64()).fill_null(THERE).to_numpy()
    return found
