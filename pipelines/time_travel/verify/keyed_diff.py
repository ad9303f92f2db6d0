"""Comparison of a source's or a target's rows with the log's state: which keys differ, and
how; without a key, the count of each distinct row."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Log
from headwater.core_log.rows.digests import Digests
from headwater.pipelines.loops.deliver.slice_reader import AfterLog, RecordOffset, changes_at
from headwater.pipelines.loops.thread_offload import run_in_thread
from headwater.pipelines.time_travel.history.cut_points import Ends
from headwater.pipelines.time_travel.verify.deleted_rows import THERE
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns, LogPass, LogState
from headwater.sinks.sink import DeletedRows

KEYS_KEPT = 100_000
"""Differing keys that are remembered; further ones are only counted."""
ROWS_KEPT = 100
"""Differing rows of the other side whose values are remembered, in the order in which they come."""
NOTHING: Digests = np.zeros(0, np.uint64)
MERGE_ROWS = 2_000_000
"""Rows that are held before equal ones are counted."""
NOWHERE = -1


class DifferenceKind(Enum):
    """The difference of a key, seen from the side that is compared with the log."""

    CHANGED = "has other values"
    MISSING = "is missing"
    EXTRA = "is not in the log"
    TWICE = "exists more than once"


@dataclass(frozen=True, slots=True)
class DifferingKey:
    kind: DifferenceKind
    key: Mapping[str, Any] | None
    """None if only its digest is known; `place` then says where it can be read."""
    place: RecordOffset | None
    """The key's newest record in the log; None if the log does not have it."""
    ours: int = 0
    """The row's digest in the log; 0 if it is not there."""
    theirs: int = 0
    end_us: int = THERE
    """The row's delete time by the log, or `THERE`."""
    row: Mapping[str, Any] | None = None
    """The other side's values; None if it has no row, or they are not remembered."""


@dataclass(slots=True)
class ComparisonResult:
    log_rows: int
    rows: int = 0
    counts: dict[DifferenceKind, int] = field(
        default_factory=lambda: dict.fromkeys(DifferenceKind, 0)
    )
    keys: dict[int, DifferingKey] = field(default_factory=dict)
    """By the digest of the key."""

    @property
    def differing(self) -> int:
        return sum(self.counts.values())

    def unchanged_since(self, earlier: "ComparisonResult") -> "ComparisonResult":
        """Keeps only keys that differed before in the same way: all others were in transit."""
        kept = {
            digest: found
            for digest, found in self.keys.items()
            if (before := earlier.keys.get(digest)) is not None
            and (before.ours, before.theirs) == (found.ours, found.theirs)
        }
        counts = dict.fromkeys(DifferenceKind, 0)
        for found in kept.values():
            counts[found.kind] += 1
        return replace(self, counts=counts, keys=kept)


class KeyedDiff:
    """Compares the other side's rows, in any order."""

    def __init__(
        self, state: LogState, shape: ComparedColumns, *, deleted: DeletedRows = DeletedRows.GONE
    ) -> None:
        """`state` includes deleted rows if the other side keeps them."""
        self._state, self._shape, self._deleted = state, shape, deleted
        self._seen = np.zeros(len(state.keys), np.bool_)
        self.result = ComparisonResult(len(state))

    def take(self, rows: pa.RecordBatch, ends_us: Int64Array | None = None) -> None:
        """`rows` have the form of `Shape.projected`; `ends_us` are their delete times."""
        keys, digests = self._shape.digests(rows)
        places, is_known = self._state.find(keys)
        known = places[is_known]
        is_again = np.zeros(len(keys), np.bool_)
        is_again[is_known] = self._seen[known] | ~_firsts(known)
        self._seen[known] = True
        is_changed, is_extra = is_known & ~is_again, ~is_known
        is_changed[is_known] &= self._state.is_row[known] & (
            self._state.rows[known] != digests[is_known]
        )
        if self._state.is_former is not None:
            is_changed[is_known] &= ~self._state.is_former[known]
        if self._deleted is DeletedRows.STAY:
            is_extra &= self._state.is_whole
        elif ends_us is not None:
            is_changed |= self._is_of_another_end(known, is_known, ends_us) & ~is_again
            is_extra |= is_known & (ends_us == THERE) & ~self._is_row(known, is_known)
            is_extra &= (ends_us == THERE) | self._state.is_whole
            is_changed &= ~is_extra
        self.result.rows += rows.num_rows
        self._add_differences(DifferenceKind.TWICE, is_again, rows, keys, digests, places)
        self._add_differences(DifferenceKind.CHANGED, is_changed, rows, keys, digests, places)
        self._add_differences(DifferenceKind.EXTRA, is_extra, rows, keys, digests, places)

    def _is_of_another_end(
        self, known: Int64Array, is_known: BoolArray, ends_us: Int64Array
    ) -> BoolArray:
        """Returns rows with another delete time. Topics compacted by another key tell only the
        latest one."""
        found = np.zeros(len(is_known), np.bool_)
        ours, theirs = self._state.ends_us[known], ends_us[is_known]
        is_earlier = self._state.is_bound[known] & (theirs != THERE) & (theirs < ours)
        found[is_known] = (theirs != ours) & ~is_earlier
        return found

    def _is_row(self, known: Int64Array, is_known: BoolArray) -> BoolArray:
        found = np.zeros(len(is_known), np.bool_)
        found[is_known] = self._state.is_row[known]
        return found

    def pass_over(self, keys: Digests | None) -> None:
        """Skips keys of rows that cannot be compared; None: any key may be one."""
        if keys is None:
            self._seen[:] = True
            return
        places, is_known = self._state.find(keys)
        self._seen[places[is_known]] = True

    def finish(self) -> ComparisonResult:
        is_missing = ~self._seen & self._state.is_row
        if self._state.is_former is not None:
            is_missing &= ~self._state.is_former
        missing = np.flatnonzero(is_missing)
        self.result.counts[DifferenceKind.MISSING] += len(missing)
        for place in missing[: self._room].tolist():
            ours = int(self._state.rows[place])
            end_us = int(self._state.ends_us[place])
            found = DifferingKey(
                DifferenceKind.MISSING, None, self._state.place(place), ours, end_us=end_us
            )
            self.result.keys[int(self._state.keys[place])] = found
        return self.result

    @property
    def _room(self) -> int:
        return max(KEYS_KEPT - len(self.result.keys), 0)

    def _add_differences(
        self,
        kind: DifferenceKind,
        mask: Any,
        rows: pa.RecordBatch,
        keys: Digests,
        digests: Digests,
        places: Int64Array,
    ) -> None:
        found = np.flatnonzero(mask)
        self.result.counts[kind] += len(found)
        found = found[: self._room]
        named = rows.select(list(self._shape.schema.key)).take(pa.array(found)).to_pylist()
        kept = max(ROWS_KEPT - len(self.result.keys), 0)
        values: list[Mapping[str, Any] | None] = rows.take(pa.array(found[:kept])).to_pylist()
        values += [None] * (len(named) - len(values))
        for row, key, its_values in zip(found.tolist(), named, values, strict=True):
            is_row = kind is not DifferenceKind.EXTRA
            place = self._state.place(int(places[row])) if is_row else None
            ours = int(self._state.rows[places[row]]) if is_row else 0
            self.result.keys[int(keys[row])] = DifferingKey(
                kind,
                key,
                place,
                ours,
                int(digests[row]),
                self._end_of(keys[row], int(places[row])),
                its_values,
            )

    def _end_of(self, key: np.uint64, place: int) -> int:
        is_known = len(self._state.keys) and self._state.keys[place] == key
        return int(self._state.ends_us[place]) if is_known else THERE


def _firsts(places: Int64Array) -> Any:
    """Returns which of them appear for the first time."""
    found = np.zeros(len(places), np.bool_)
    found[np.unique(places, return_index=True)[1]] = True
    return found


class DigestPrecheck:
    """Rows as two numbers each, in the order of arrival."""

    def __init__(self, shape: ComparedColumns) -> None:
        self._shape = shape
        self._keys, self._rows = [NOTHING], [NOTHING]

    def take(self, rows: pa.RecordBatch) -> None:
        keys, digests = self._shape.digests(self._shape.project(rows))
        self._keys.append(keys)
        self._rows.append(digests)

    def compare(self, state: LogState) -> ComparisonResult | None:
        """Returns None if anything differs: a `KeyedDiff` then finds the keys."""
        keys, rows = np.concatenate(self._keys), np.concatenate(self._rows)
        if len(keys) != len(state):
            return None
        order = np.argsort(keys)
        if (keys[order] != state.keys).any() or (rows[order] != state.rows).any():
            return None
        return ComparisonResult(len(state), len(state))


Precheck = asyncio.Future[DigestPrecheck]


@asynccontextmanager
async def precheck(
    batches: AsyncGenerator[pa.RecordBatch, None], shape: ComparedColumns
) -> AsyncIterator[Precheck]:
    """Runs the check; a caller that does not wait gets no result."""
    coming = asyncio.ensure_future(_read_digests(batches, shape))
    try:
        yield coming
    finally:
        await let_go(coming)


async def _read_digests(
    batches: AsyncGenerator[pa.RecordBatch, None], shape: ComparedColumns
) -> DigestPrecheck:
    found = DigestPrecheck(shape)
    async with aclosing(batches):
        async for batch in batches:
            await run_in_thread(partial(found.take, batch), batch.nbytes)
    return found


async def rows_at(
    log: Log, places: Collection[RecordOffset], after_log: AfterLog, columns: ComparedColumns
) -> Mapping[RecordOffset, Mapping[str, Any]]:
    """Returns what these columns hold; a row whose values do not fit today's types is left out."""
    found: dict[RecordOffset, Mapping[str, Any]] = {}
    for changes in await changes_at(log, places, after_log):
        assert changes.log_partition is not None, "changes of the log have offsets"
        assert changes.log_offsets is not None, "changes of the log have offsets"
        try:
            rows = columns.project(changes.rows).to_pylist()
        except SinkRejected:
            continue
        for offset, row in zip(changes.log_offsets.to_pylist(), rows, strict=True):
            found[changes.log_partition, offset] = row
    return found


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
        assert partition is not None and offsets is not None, "changes of the log have offsets"
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
