"""The merge of changes into a table's rows, for each mode."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.model.changes import Operation, op_codes
from headwater.core_log.rows.codec import key_values
from headwater.core_log.rows.digests import Digests, digests_of
from headwater.sinks.fold import (
    NONE,
    FormerRows,
    counting,
    find_repeated,
    key_codes,
    soft_fold,
    versions,
)
from headwater.sinks.object_names import COMMITTED_AT, IS_CURRENT, OFFSET, OP, VALID_FROM, VALID_TO
from headwater.sinks.sink import DELETED_AT
from headwater.sinks.spark.column_types import MOMENT
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.settings import Mode

RUN_ROWS_MIN = 1_000
"""Rows that a run has on average, if rows are taken run by run."""


@dataclass(frozen=True, slots=True)
class TruncateStep:
    """A truncate of all rows, or of those with certain values."""

    committed_us: int
    where: Mapping[str, Any] = field(default_factory=dict)


MergeStep: TypeAlias = pa.Table | TruncateStep
"""Events, or a truncate between them."""


def fold(base: pa.Table, steps: Iterable[MergeStep], layout: LakeTableLayout) -> pa.Table:
    """Returns the rows after all steps in their order, sorted by key."""
    rows, is_ordered = base, False
    for step in steps:
        if isinstance(step, TruncateStep):
            rows = _truncate(rows, step, layout)
        elif step.num_rows:
            rows, is_ordered = FOLDS[layout.mode](rows, step, layout), layout.mode == "mirror"
    return rows if is_ordered else _in_key_order(rows, layout)


def add_missing(base: pa.Table, rows: pa.Table, layout: LakeTableLayout) -> pa.Table | None:
    """Returns the rows with those of `rows` whose keys are missing; None if no key is missing."""
    more = rows.filter(pc.invert(_is_among(rows, base, layout)))
    return _in_key_order(pa.concat_tables([base, more]), layout) if more.num_rows else None


def to_append_rows(events: pa.Table) -> pa.Table:
    """Returns every change as a row."""
    codes = op_codes(pa.array(np.asarray(events.column(OP))))
    moments = events.column(COMMITTED_AT).cast(pa.int64()).cast(MOMENT)
    replaced = {OP: pa.chunked_array([codes]), COMMITTED_AT: moments}
    names = events.schema.names
    return pa.table([replaced.get(name, events.column(name)) for name in names], names=names)


def _in_key_order(rows: pa.Table, layout: LakeTableLayout) -> pa.Table:
    """Sorts by key, so that readers of one key can skip most of a file."""
    if not layout.key or layout.mode == "append" or rows.num_rows < 2:
        return rows
    places = _key_order(_keys(rows, layout))
    return rows if places is None else rows.take(pa.array(places))


def _key_order(keys: pa.RecordBatch) -> Int64Array | None:
    """Returns the sorted order of the rows; None if they are in order or have no key."""
    found: Int64Array
    if keys.num_columns == 1 and pa.types.is_integer(keys.column(0).type):
        values = keys.column(0)
        if not values.null_count:
            found = np.argsort(values.to_numpy(), kind="stable")  # fast if much is in order
            return None if _is_rising(found) else found
    try:
        sorted_ = pc.sort_indices(keys, [(name, "ascending") for name in keys.schema.names])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # types without an order
        return None
    found = sorted_.to_numpy().astype(np.int64)
    return None if _is_rising(found) else found


def _is_rising(numbers: Int64Array) -> bool:
    return bool(np.all(numbers[1:] >= numbers[:-1]))


def pick(rows: pa.Table, places: Int64Array) -> pa.Table:
    """Returns the rows at some places. Long runs, as a snapshot brings them, are not copied."""
    cuts = np.flatnonzero(np.diff(places) != 1) + 1
    if not len(places) or len(cuts) * RUN_ROWS_MIN > len(places):
        return rows.take(pa.array(places))
    starts, ends = [0, *cuts.tolist()], [*cuts.tolist(), len(places)]
    runs = zip(starts, ends, strict=True)
    return pa.concat_tables([rows.slice(int(places[start]), end - start) for start, end in runs])


def _mirror(base: pa.Table, events: pa.Table, layout: LakeTableLayout) -> pa.Table:
    """Merges the newest row of each key into the base.

    The rows to keep and their order are found by the keys alone, and all other columns are moved
    once: moving is the largest cost.
    """
    deleted = _is_deleted(events)
    order = _log_order(events)
    if order is None:
        order = np.arange(events.num_rows)
    keys = _keys(events, layout)
    latest = counting(
        layout.mode,
        keys.take(pa.array(order)),
        deleted[order],
        ignores_deletes=layout.ignores_deletes,
    )
    if latest is not None:
        order = order[latest]
    coming = order[~deleted[order]]
    base_keys = _keys(base, layout)
    kept = np.arange(base.num_rows)
    if base.num_rows:
        changed = pa.Table.from_batches([keys.take(pa.array(order))])
        places = _places(pa.Table.from_batches([base_keys]), changed, layout)
        kept = kept[np.asarray(places.is_null())]
    left = [base_keys.take(pa.array(kept)), keys.take(pa.array(coming))]
    chosen = np.concatenate([kept, coming + base.num_rows])
    sorted_ = _key_order(pa.concat_batches(left))
    if sorted_ is not None:
        chosen = chosen[sorted_]
    rows = pa.concat_tables([base, _rows(events, layout)])
    return pick(rows, chosen)


def _soft_delete(base: pa.Table, events: pa.Table, layout: LakeTableLayout) -> pa.Table:
    events = _in_order(events)
    fold = soft_fold(_keys(events, layout), _is_deleted(events))
    times = events.column(COMMITTED_AT).cast(MOMENT)
    coming, gone = events.take(pa.array(fold.states)), events.take(pa.array(fold.deletes))
    ended = times.take(pa.array(fold.ends, mask=fold.ends == NONE))
    kept = base.filter(pc.invert(_is_among(base, coming, layout)))
    stamps = times.take(pa.array(fold.deletes)).take(_places(kept, gone, layout))
    kept = _with(kept, {DELETED_AT: pc.coalesce(kept.column(DELETED_AT), stamps)})
    return pa.concat_tables([kept, _with(_rows(coming, layout), {DELETED_AT: ended})])


def _append(base: pa.Table, events: pa.Table, layout: LakeTableLayout) -> pa.Table:
    return pa.concat_tables([base, to_append_rows(_in_order(events)).select(layout.schema.names)])


def _scd2(base: pa.Table, events: pa.Table, layout: LakeTableLayout) -> pa.Table:
    """Returns one row per version (`scd2`).

    States inside one commit were never visible and are left out, as is a version that would end
    before it begins.
    """
    events = _without_repeated(base, _in_order(events), layout)
    if not events.num_rows:
        return base
    known = _behind_versions(base, events, layout)
    order, times, begins, ends = versions(_keys(events, layout), known)
    versioned = events.take(pa.array(order))
    firsts = versioned.filter(pa.array(begins))
    since = pa.chunked_array([pa.array(times[begins]).cast(MOMENT)])
    base = _with_ended(base, _places(base, firsts, layout), since)
    written = ~_is_deleted(versioned)
    kept = versioned.filter(pa.array(written))
    until = np.append(times[1:], 0)[written]
    own = {
        VALID_FROM: pa.array(times[written]).cast(MOMENT),
        VALID_TO: pa.array(until, mask=ends[written]).cast(MOMENT),
        IS_CURRENT: pa.array(ends[written]),
    }
    return pa.concat_tables([base, _with(_rows(kept, layout), own)])


def _behind_versions(base: pa.Table, events: pa.Table, layout: LakeTableLayout) -> Int64Array:
    """Returns the times of the events; none is earlier than the versions that the table has of its
    key, also where the clock of the source goes back."""
    times: Int64Array = np.asarray(events.column(COMMITTED_AT))
    newest = [base.column(name).cast(pa.int64()) for name in (VALID_FROM, VALID_TO)]
    known = np.asarray(pc.max_element_wise(*newest, skip_nulls=True))
    if not len(known) or known.max() <= times.min():
        return times
    places = np.asarray(_places(base, events, layout).fill_null(NONE))
    latest: Int64Array = np.full(events.num_rows, np.iinfo(np.int64).min)
    np.maximum.at(latest, places[places != NONE], known[places != NONE])
    found: Int64Array = np.maximum(times, latest[np.asarray(_places(events, events, layout))])
    return found


def are_rereads(events: pa.Table, layout: LakeTableLayout) -> BoolArray:
    """Returns which changes are re-read rows that can be compared, which needs a key."""
    found: BoolArray = np.asarray(events.column(OP)) == Operation.REREAD
    return found & bool(layout.key)


def _without_repeated(base: pa.Table, events: pa.Table, layout: LakeTableLayout) -> pa.Table:
    """Returns the events without re-read rows that equal the current version."""
    if not are_rereads(events, layout).any():
        return events
    current = base.filter(base.column(IS_CURRENT))

    def former(asked: Int64Array) -> FormerRows:
        places = _places(events.take(pa.array(asked)), current, layout)
        held = np.append(_digests(current, layout), np.uint64(0))
        found = np.asarray(places.fill_null(len(current)))
        return FormerRows(found < len(current), held[found])

    operations = np.asarray(events.column(OP))
    repeated = find_repeated(_keys(events, layout), operations, _digests(events, layout), former)
    return events if repeated is None else events.filter(pa.array(~repeated))


def _digests(rows: pa.Table, layout: LakeTableLayout) -> Digests:
    return digests_of([_whole(rows.column(name)) for name in layout.compared], rows.num_rows)


FOLDS: Mapping[Mode, Callable[[pa.Table, pa.Table, LakeTableLayout], pa.Table]] = {
    "mirror": _mirror,
    "soft_delete": _soft_delete,
    "append": _append,
    "scd2": _scd2,
}


def _truncate(rows: pa.Table, step: TruncateStep, layout: LakeTableLayout) -> pa.Table:
    meant: Any = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
    for name, value in step.where.items():
        if name in layout.columns.names:
            column = rows.column(name)
            meant = pc.and_(meant, pc.equal(column, pa.scalar(value, column.type)).fill_null(False))
    moment = pa.scalar(step.committed_us, pa.int64()).cast(MOMENT)
    if layout.mode == "mirror":
        return rows if layout.ignores_deletes else rows.filter(pc.invert(meant))
    if layout.mode == "soft_delete":
        old = rows.column(DELETED_AT)
        stamped = pc.if_else(pc.and_(meant, old.is_null()), moment, old)
        return _with(rows, {DELETED_AT: stamped})
    if layout.mode == "scd2":
        meant = pc.and_(meant, rows.column(IS_CURRENT))
        nobody = pa.nulls(rows.num_rows, pa.int64())
        places = pc.if_else(meant, pa.scalar(0, pa.int64()), nobody)
        return _with_ended(rows, places, pa.chunked_array([pa.array([moment.as_py()], MOMENT)]))
    return rows


def _with_ended(rows: pa.Table, places: pa.ChunkedArray, since: pa.ChunkedArray) -> pa.Table:
    """Ends current versions that have a place in `since`; drops versions that begin after their
    end."""
    ends = since.take(places)
    is_current = rows.column(IS_CURRENT)
    is_ended = pc.and_(is_current, ends.is_valid())
    never = pc.and_(is_ended, pc.greater_equal(rows.column(VALID_FROM), ends).fill_null(False))
    rows = _with(
        rows,
        {
            VALID_TO: pc.if_else(is_ended, ends, rows.column(VALID_TO)),
            IS_CURRENT: pc.and_(is_current, pc.invert(is_ended)),
        },
    )
    return rows.filter(pc.invert(never))


def _in_order(events: pa.Table) -> pa.Table:
    places = _log_order(events)
    return events if places is None else events.take(pa.array(places))


def _log_order(events: pa.Table) -> Int64Array | None:
    """Returns the order of events; None if they are in order.

    A key is in one partition of a topic, so its offsets order its changes.
    """
    offsets = np.asarray(events.column(OFFSET))
    return None if _is_rising(offsets) else np.argsort(offsets, kind="stable")


def _is_deleted(events: pa.Table) -> BoolArray:
    found: BoolArray = np.asarray(events.column(OP)) == Operation.DELETE
    return found


def _is_among(base: pa.Table, events: pa.Table, layout: LakeTableLayout) -> pa.ChunkedArray:
    return _places(base, events, layout).is_valid()


def _places(base: pa.Table, events: pa.Table, layout: LakeTableLayout) -> pa.ChunkedArray:
    """Returns for every base row the place of an event with its key, or null."""
    if len(layout.key) == 1:
        name = layout.key[0]
        wanted = key_values(events.column(name)).combine_chunks()
        if isinstance(wanted, pa.ChunkedArray):
            wanted = pa.concat_arrays(wanted.chunks)
        return pc.index_in(key_values(base.column(name)), value_set=wanted).cast(pa.int64())
    both = _keys(pa.concat_tables([base.select(layout.key), events.select(layout.key)]), layout)
    codes, count = key_codes(both)
    places = np.full(count, -1, dtype=np.int64)
    theirs = codes[base.num_rows :]
    places[theirs] = np.arange(len(theirs))
    found = places[codes[: base.num_rows]]
    return pa.chunked_array([pa.array(found, mask=found < 0)])


def _keys(rows: pa.Table, layout: LakeTableLayout) -> pa.RecordBatch:
    columns = [_whole(rows.column(name)) for name in layout.key]
    return pa.RecordBatch.from_arrays(columns, names=list(layout.key))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _rows(events: pa.Table, layout: LakeTableLayout) -> pa.Table:
    return events.select(layout.columns.names)


def _with(rows: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Returns the table with these columns, replaced by name or appended."""
    for name, column in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.append_column(name, column) if at < 0 else rows.set_column(at, name, column)
    return rows


def count_changes(steps: Sequence[MergeStep]) -> int:
    """Returns the number of changes in all steps."""
    return sum(step.num_rows for step in steps if isinstance(step, pa.Table))
