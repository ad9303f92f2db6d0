"""Comparison of a source's or a target's rows with the log's state: which keys differ, and how."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.log import Log
from headwater.core_log.rows.digests import Digests
from headwater.pipelines.loops.deliver.slice_reader import AfterLog, RecordOffset, changes_at
from headwater.pipelines.loops.thread_offload import run_in_thread
from headwater.pipelines.time_travel.verify.deleted_rows import THERE
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns, LogState
from headwater.sinks.sink import DeletedRows

KEYS_KEPT = 100_000
"""Differing keys that are remembered; further ones are only counted."""
ROWS_KEPT = 100
"""Differing rows of the other side whose values are remembered, in the order in which they come."""


class DifferenceKind(Enum):
    """The difference of a key, seen from the side that is compared with the log."""

    CHANGED = "has other values"
    MISSING = "is missing"
    EXTRA = "is there, and not in the log"
    TWICE = "is there more than once"


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


NOTHING: Digests = np.zeros(0, np.uint64)


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
        assert changes.log_partition is not None, "what was read knows its place"
        assert changes.log_offsets is not None, "what was read knows its place"
        try:
            rows = columns.project(changes.rows).to_pylist()
        except SinkRejected:
            continue
        for offset, row in zip(changes.log_offsets.to_pylist(), rows, strict=True):
            found[changes.log_partition, offset] = row
    return found
