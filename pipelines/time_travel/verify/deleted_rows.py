"""What the log tells of rows that are gone: their last values, and since when they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.rows.digests import Digests
from headwater.pipelines.journal.generations import carried_marks

THERE = np.iinfo(np.int64).min
"""In the place of a moment: the row is not gone."""


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """Changes of one partition, or what is left of them; a key's are in the order of the log."""

    keys: Digests
    rows: Digests
    offsets: Int64Array
    is_row: BoolArray
    """Where not, only a delete is told: of what row the log does not know any more."""
    ends_us: Int64Array
    """When what came last of the row went, or `THERE`."""
    is_bound: BoolArray
    """Whether it may have gone earlier: that was told by what is compacted by another key."""

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


def piece_of(changes: TableChanges, keys: Digests, rows: Digests) -> PartitionChanges:
    assert changes.log_offsets is not None, "what was read knows its place"
    is_row = changes.operations.to_numpy() != Operation.DELETE
    ends_us = np.where(is_row, THERE, changes.committed_us.to_numpy())
    return PartitionChanges(keys, rows, changes.log_offsets.to_numpy(), is_row, ends_us, ~is_row)


def fold(pieces: Sequence[PartitionChanges], *, keeps_deleted: bool) -> PartitionChanges:
    """One of each key, by digest: the newest, deletes left out; or the last row and what ended it,
    the first delete where there is no row."""
    if not pieces:
        return NOTHING
    keys = np.concatenate([piece.keys for piece in pieces])
    order = np.argsort(keys)  # in which equal ones come anyhow: a stable order takes twice as long
    if not len(order):
        return NOTHING
    ordered = keys[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    whole = concat_pieces(pieces)
    if not keeps_deleted:
        newest = np.maximum.reduceat(order, begins)
        return whole.take(newest[whole.is_row[newest]])
    order = np.argsort(keys, kind="stable")
    return _with_ends(whole.take(order), begins)


def concat_pieces(pieces: Sequence[PartitionChanges]) -> PartitionChanges:
    return PartitionChanges(
        np.concatenate([piece.keys for piece in pieces]),
        np.concatenate([piece.rows for piece in pieces]),
        np.concatenate([piece.offsets for piece in pieces]),
        np.concatenate([piece.is_row for piece in pieces]),
        np.concatenate([piece.ends_us for piece in pieces]),
        np.concatenate([piece.is_bound for piece in pieces]),
    )


def _with_ends(whole: PartitionChanges, begins: Int64Array) -> PartitionChanges:
    """`whole` is in the order of its keys, each of which begins at one of these places."""
    count = len(whole.keys)
    at, lengths = np.arange(count), np.diff(np.append(begins, count))
    last = np.maximum.reduceat(np.where(whole.is_row, at, -1), begins)
    is_gone = (whole.ends_us != THERE) & (at >= np.repeat(last, lengths))
    first = np.minimum.reduceat(np.where(is_gone, at, count), begins)
    is_row, end = last >= 0, np.minimum(first, count - 1)
    chosen = whole.take(np.where(is_row, last, end))
    ends_us = np.where(first < count, whole.ends_us[end], THERE)
    is_plain = is_row & ~whole.is_row[end]  # a delete after a row that is still told is the first
    is_bound = np.where(is_plain, False, whole.is_bound[end]) & (first < count)
    return replace(chosen, ends_us=ends_us, is_bound=is_bound)


def truncate(piece: PartitionChanges, *, committed_us: int) -> PartitionChanges:
    """After a truncate. An earlier one may have been compacted away since."""
    is_there = piece.ends_us == THERE
    return replace(
        piece,
        ends_us=np.where(is_there, committed_us, piece.ends_us),
        is_bound=piece.is_bound | is_there,
    )


async def cleaned_to(
    log: Log, pipeline: str, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Below which offsets the log may have forgotten changes; without a bound where it does not
    say so."""
    bounds, marks = await log.bounds(partitions), await carried_marks(log, pipeline, partitions)
    unknown = np.iinfo(np.int64).max
    return {
        part: unknown
        if held.cleaned_to < 0
        else max(held.cleaned_to, held.start, marks.get(part, 0))
        for part, held in bounds.items()
    }


def ends_in(rows: pa.RecordBatch, column: str) -> Int64Array:
    """When rows of a target were deleted, as `Piece` says it."""
    found: Int64Array = rows.column(column).cast(pa.int64()).fill_null(THERE).to_numpy()
    return found
