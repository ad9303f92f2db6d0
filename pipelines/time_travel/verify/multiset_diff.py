"""Comparison of tables without a key as multisets: the count of each distinct row."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Log
from headwater.core_log.rows.digests import Digests
from headwater.pipelines.loops.deliver.slice_reader import AfterLog
from headwater.pipelines.time_travel.history.cut_points import Ends
from headwater.pipelines.time_travel.verify.keyed_diff import (
    KEYS_KEPT,
    ComparisonResult,
    DifferenceKind,
    DifferingKey,
)
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns, LogPass

MERGE_ROWS = 2_000_000
"""Rows that are held before equal ones are counted."""
NOWHERE = -1


class Multiset:
    """For every distinct row two counts, and its last place in the log."""

    def __init__(self) -> None:
        self.empty()

    def empty(self) -> None:
        self._digests: Digests = np.zeros(0, np.uint64)
        self._counts: Int64Array = np.zeros(0, np.int64)
        self._places: Int64Array = np.zeros(0, np.int64)
        self._waiting: list[tuple[Digests, Int64Array, Int64Array]] = []
        self._waiting_rows = 0

    def add(self, rows: Digests, *, times: int = 1, places: Int64Array | None = None) -> None:
        """Adds rows; `times` is negative for deleted rows."""
        nowhere = np.full(len(rows), NOWHERE, np.int64)
        counts = np.full(len(rows), times, np.int64)
        self._waiting.append((rows, counts, nowhere if places is None else places))
        self._waiting_rows += len(rows)
        if self._waiting_rows > MERGE_ROWS:
            self._merge()

    def content(self) -> tuple[Digests, Int64Array, Int64Array]:
        """Returns digests in ascending order, with counts and places."""
        self._merge()
        return self._digests, self._counts, self._places

    def _merge(self) -> None:
        parts = [(self._digests, self._counts, self._places), *self._waiting]
        digests, counts, places = (np.concatenate(each) for each in zip(*parts, strict=True))
        self._waiting, self._waiting_rows = [], 0
        if not len(digests):
            return
        order = np.argsort(digests, kind="stable")
        begins = np.flatnonzero(np.append(True, np.diff(digests[order]) != 0))
        self._digests = digests[order][begins]
        self._counts = np.add.reduceat(counts[order], begins)
        self._places = np.maximum.reduceat(places[order], begins)


class LogMultiset:
    """A table's rows in the log up to a moment."""

    def __init__(
        self, log: Log, shape: ComparedColumns, ends: Ends, *, after_log: AfterLog, fetch_bytes: int
    ) -> None:
        self._shape, self._ends, self._partitions = shape, ends, sorted(ends)
        self._pass = LogPass(log, after_log, fetch_bytes)
        self.skipped = self._pass.skipped

    async def read(self, *, as_rows: bool) -> Multiset:
        """Reads the source's rows, or every change as a row, as change logs keep them."""
        take = self._take_rows if as_rows else self._take_changes
        return await self._pass.read(self._ends, Multiset, take, has_barriers=True)

    def place(self, code: int) -> Mapping[str, int | str]:
        partition = self._partitions[code >> 48]
        return {"partition": partition.partition, "offset": code & (1 << 48) - 1}

    def _take_changes(self, found: Multiset, changes: TableChanges) -> None:
        found.add(self._digests(changes.rows), places=self._places(changes))

    def _take_rows(self, found: Multiset, changes: TableChanges) -> None:
        operations = changes.operations.to_numpy()
        if changes.is_truncate:
            if changes.truncated_where:
                raise _unknown("a truncate removed only some of its rows", changes)
            found.empty()
            return
        rows, places = self._digests(changes.rows), self._places(changes)
        is_gone = operations == Operation.DELETE
        found.add(rows[~is_gone], places=places[~is_gone])
        found.add(rows[is_gone], times=-1)
        is_update = operations == Operation.UPDATE
        if is_update.any():
            if changes.before is None or changes.before.filter(pa.array(is_update)).null_count:
                raise _unknown("an update does not say which row it changed", changes)
            images = changes.before.filter(pa.array(is_update))
            before = pa.RecordBatch.from_arrays(images.flatten(), schema=changes.rows.schema)
            found.add(self._digests(before), times=-1)

    def _digests(self, rows: pa.RecordBatch) -> Digests:
        return self._shape.digests(self._shape.project(rows))[1]

    def _places(self, changes: TableChanges) -> Int64Array:
        partition, offsets = changes.log_partition, changes.log_offsets
        assert partition is not None and offsets is not None, "what was read knows its place"
        first = self._partitions.index(partition) << 48
        found: Int64Array = offsets.to_numpy().astype(np.int64) | first
        return found


def multiset_diff(log: LogMultiset, ours: Multiset, theirs: Multiset) -> ComparisonResult:
    """Compares both sides; missing rows without a key are named by their place in the log."""
    (our_rows, our_counts, places), (their_rows, their_counts, _) = ours.content(), theirs.content()
    rows = np.union1d(our_rows, their_rows)
    more = _spread(rows, our_rows, our_counts) - _spread(rows, their_rows, their_counts)
    found = ComparisonResult(int(our_counts.sum()), int(their_counts.sum()))
    found.counts[DifferenceKind.MISSING] = int(more[more > 0].sum())
    found.counts[DifferenceKind.EXTRA] = int(-more[more < 0].sum())
    for at in np.flatnonzero(more)[:KEYS_KEPT].tolist():
        digest = int(rows[at])
        if more[at] < 0:
            found.keys[digest] = DifferingKey(DifferenceKind.EXTRA, {}, None, theirs=digest)
            continue
        place = int(places[np.searchsorted(our_rows, rows[at])])
        found.keys[digest] = DifferingKey(
            DifferenceKind.MISSING, log.place(place), None, ours=digest
        )
    return found


def _spread(rows: Digests, own: Digests, counts: Int64Array) -> Int64Array:
    found: npt.NDArray[np.int64] = np.zeros(len(rows), np.int64)
    found[np.searchsorted(rows, own)] = counts
    return found


def _unknown(why: str, changes: TableChanges) -> SinkRejected:
    return SinkRejected(
        f"the rows of the table without a key are unknown: {why}",
        hint="set REPLICA IDENTITY FULL, so that updates and deletes have the old row",
        table=str(changes.schema.table),
    )
