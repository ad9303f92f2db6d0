"""The effect of changes on a table, for each mode; a history's rows are compared first."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation, op_codes
from headwater.core_log.rows.digests import digests_of
from headwater.sinks.fold import (
    NONE,
    FormerRows,
    counting,
    find_repeated,
    newest,
    soft_fold,
    versions,
)
from headwater.sinks.object_names import (
    COMMITTED_AT,
    IS_CURRENT,
    OFFSET,
    OP,
    PARTITION,
    TOPIC,
    VALID_FROM,
    VALID_TO,
)
from headwater.sinks.sink import DELETED_AT
from headwater.sinks.sql.change_buffer import (
    BufferedChanges,
    moment_literal,
    times_of,
    with_columns,
)
from headwater.sinks.sql.contents import (
    comes_back,
    key_rows_of,
    pages_of,
    question_of,
    select_columns,
)
from headwater.sinks.sql.dialects.dialect import (
    Dialect,
    RowCondition,
    RowMatch,
    UpsertKey,
    qualify,
    run,
    same_values,
)
from headwater.sinks.sql.settings import Mode
from headwater.sinks.sql.table_layout import US, SqlTableLayout

if TYPE_CHECKING:
    import sqlalchemy as sa

    from headwater.sinks.sql.target import SqlTarget

HISTORIES = ("append", "scd2")
EVER_US = np.iinfo(np.int64).min


def write(
    dialect: Dialect, connection: "sa.Connection", layout: SqlTableLayout, chunk: BufferedChanges
) -> None:
    """Applies the changes; writes only those that the table could show."""
    WRITERS[layout.mode](dialect, connection, layout, chunk)


def _mirror(
    dialect: Dialect, connection: "sa.Connection", layout: SqlTableLayout, chunk: BufferedChanges
) -> None:
    left = counting(layout.mode, chunk.keys, chunk.deleted, ignores_deletes=layout.ignores_deletes)
    if left is not None:
        chunk = chunk.take(pa.array(left))
    deleted = chunk.deleted
    if deleted.any():
        gone = _keys(layout, chunk.where(deleted))
        dialect.delete(connection, layout.table, gone, same_values(layout.source_key))
    if not deleted.all():
        rows = _rows(layout, chunk.where(~deleted))
        is_new = chunk.operations[~deleted] <= Operation.INSERT
        dialect.upsert(connection, layout.table, rows, UpsertKey(layout.key, is_new))


def _soft_delete(
    dialect: Dialect, connection: "sa.Connection", layout: SqlTableLayout, chunk: BufferedChanges
) -> None:
    fold = soft_fold(chunk.keys, chunk.deleted)
    if len(fold.deletes):
        gone = chunk.take(pa.array(fold.deletes))
        stamped = with_columns(_keys(layout, gone), {DELETED_AT: times_of(gone.committed_us)})
        dialect.update(
            connection, layout.table, stamped, same_values(layout.source_key, unset=DELETED_AT)
        )
    if len(fold.states):
        newest = chunk.take(pa.array(fold.states))
        ends = pa.array(fold.ends, mask=fold.ends == NONE)
        ended = times_of(chunk.committed_us.take(ends))
        rows = with_columns(_rows(layout, newest), {DELETED_AT: ended})
        is_new = newest.operations <= Operation.INSERT
        dialect.upsert(connection, layout.table, rows, UpsertKey(layout.key, is_new))


def _append(
    dialect: Dialect, connection: "sa.Connection", layout: SqlTableLayout, chunk: BufferedChanges
) -> None:
    topics = pa.array([part.topic for part in chunk.partitions], pa.string())
    partitions = pa.array([part.partition for part in chunk.partitions], pa.int32())
    partition_codes = pa.array(chunk.origins)
    own = {
        OP: op_codes(pa.array(chunk.operations)),
        TOPIC: topics.take(partition_codes),
        PARTITION: partitions.take(partition_codes),
        OFFSET: chunk.offsets,
        COMMITTED_AT: times_of(chunk.committed_us),
    }
    dialect.insert(connection, layout.table, with_columns(_rows(layout, chunk), own))


def _scd2(
    dialect: Dialect, connection: "sa.Connection", layout: SqlTableLayout, chunk: BufferedChanges
) -> None:
    """Writes one row per version (`scd2`).

    States inside one commit were never visible and are left out, as is a version that would end
    before it begins.
    """
    order, times, begins, ends = versions(chunk.keys, chunk.committed_us.to_numpy())
    chunk = replace(chunk.take(pa.array(order)), committed_us=pa.array(times))
    firsts = chunk.take(pa.array(np.flatnonzero(begins)))
    since, keys = times_of(firsts.committed_us), _keys(layout, firsts)
    _end_versions(dialect, connection, layout, keys, since)
    written = ~chunk.deleted
    if written.any():
        newest = chunk.where(written)
        is_current = ends[written]
        until = np.append(times[1:], 0)[written]
        own = {
            VALID_FROM: times_of(newest.committed_us),
            VALID_TO: pa.array(until, mask=is_current).cast(US),
            IS_CURRENT: pa.array(is_current),
        }
        dialect.insert(connection, layout.table, with_columns(_rows(layout, newest), own))


def _end_versions(
    dialect: Dialect,
    connection: "sa.Connection",
    layout: SqlTableLayout,
    keys: pa.RecordBatch,
    since: pa.Array,
) -> None:
    """Ends the current versions of rows with these values."""
    by_values = [RowMatch(name) for name in keys.schema.names]
    # A version that begins no earlier than its successor was never visible.
    unborn = RowCondition([*by_values, RowMatch(VALID_FROM, ">=")], where=IS_CURRENT)
    dialect.delete(connection, layout.table, with_columns(keys, {VALID_FROM: since}), unborn)
    ended = {VALID_TO: since, IS_CURRENT: pa.array([False] * len(since))}
    current = RowCondition(by_values, where=IS_CURRENT)
    dialect.update(connection, layout.table, with_columns(keys, ended), current)


def remove_all(
    dialect: Dialect,
    connection: "sa.Connection",
    layout: SqlTableLayout,
    *,
    only: pa.RecordBatch | None,
    committed_us: pa.Int64Array,
) -> None:
    """Applies a truncate; `only` limits it to rows with these values."""
    if only is not None:
        _remove(dialect, connection, layout, only, committed_us=committed_us)
        return
    table, at = qualify(dialect, layout.table), moment_literal(committed_us[0].as_py())
    if layout.mode == "mirror" and not layout.ignores_deletes:
        run(connection, f"DELETE FROM {table}")
    elif layout.mode == "soft_delete":
        deleted_at = dialect.quote(DELETED_AT)
        run(connection, f"UPDATE {table} SET {deleted_at} = {at} WHERE {deleted_at} IS NULL")
    elif layout.mode == "scd2":
        current, until = dialect.quote(IS_CURRENT), dialect.quote(VALID_TO)
        since = dialect.quote(VALID_FROM)  # a version that begins no earlier was never visible
        run(connection, f"DELETE FROM {table} WHERE {current} AND {since} >= {at}")
        run(connection, f"UPDATE {table} SET {current} = FALSE, {until} = {at} WHERE {current}")


def _remove(
    dialect: Dialect,
    connection: "sa.Connection",
    layout: SqlTableLayout,
    rows: pa.RecordBatch,
    *,
    committed_us: pa.Int64Array,
) -> None:
    """Removes the rows with these values, all at one moment."""
    since = pc.take(times_of(committed_us), pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
    if layout.mode == "mirror" and not layout.ignores_deletes:
        dialect.delete(connection, layout.table, rows, same_values(rows.schema.names))
    elif layout.mode == "soft_delete":
        stamped = with_columns(rows, {DELETED_AT: since})
        undeleted = same_values(rows.schema.names, unset=DELETED_AT)
        dialect.update(connection, layout.table, stamped, undeleted)
    elif layout.mode == "scd2":
        _end_versions(dialect, connection, layout, rows, since)


def _keys(layout: SqlTableLayout, chunk: BufferedChanges) -> pa.RecordBatch:
    keys = chunk.keys
    return keys.rename_columns([layout.names[name] for name in keys.schema.names])


def _rows(layout: SqlTableLayout, chunk: BufferedChanges) -> pa.RecordBatch:
    """Returns the rows under the target's names; null for removed source columns."""
    rows = chunk.rows.select(list(layout.names))
    rows = rows.rename_columns(list(layout.names.values()))
    absent = {
        name: pa.nulls(len(chunk), kind or pa.string()) for name, kind in layout.absent.items()
    }
    return with_columns(rows, absent) if absent else rows


WRITERS: Mapping[
    Mode, Callable[[Dialect, "sa.Connection", SqlTableLayout, BufferedChanges], None]
] = {
    "mirror": _mirror,
    "soft_delete": _soft_delete,
    "append": _append,
    "scd2": _scd2,
}


def without_repeated(
    target: "SqlTarget", layout: SqlTableLayout, chunk: BufferedChanges
) -> BufferedChanges:
    """Returns the changes without re-read rows whose values a history has already."""
    if layout.mode not in HISTORIES or not chunk.schema.key:
        return chunk
    if not (chunk.operations == Operation.REREAD).any():
        return chunk
    names = list(layout.names)

    def former(key_rows: Int64Array) -> FormerRows:
        keys = chunk.keys.take(pa.array(key_rows))
        return _former_rows(target, layout, chunk, keys)

    compared = _comparable(target, chunk, chunk.rows.select(names))
    digests = digests_of(compared.columns, len(chunk))
    repeated = find_repeated(chunk.keys, chunk.operations, digests, former)
    return chunk if repeated is None else chunk.where(~repeated)


def _former_rows(
    target: "SqlTarget",
    layout: SqlTableLayout,
    chunk: BufferedChanges,
    keys: pa.RecordBatch,
) -> FormerRows:
    """Returns the table's rows of these keys, read back as `verify` does."""
    dialect, connection, schema = target.dialect, target.connect(), chunk.schema
    named = keys.rename_columns([layout.names[name] for name in keys.schema.names])
    among = dialect.among(connection, layout.table, named, is_indexed=layout.mode == "scd2")
    names = tuple(layout.names)
    topics = {part.topic for part in chunk.partitions}
    topics |= target.fed_by(target.tables.live(schema.table))
    question = question_of(dialect, layout, names, schema, sorted(topics), among=among)
    fields = [schema.arrow.field(name) for name in names]
    are_there, digests = np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.uint64)
    for page in pages_of(target, question, schema, fields):
        key_rows = key_rows_of(keys, page.select(keys.schema.names))
        rows = _comparable(target, chunk, page.filter(pa.array(key_rows != NONE)))
        key_rows = key_rows[key_rows != NONE]
        are_there[key_rows] = True
        digests[key_rows] = digests_of(rows.columns, len(rows))
    return FormerRows(are_there, digests)


def _comparable(
    target: "SqlTarget", chunk: BufferedChanges, rows: pa.RecordBatch
) -> pa.RecordBatch:
    """Returns the rows with JSON in one form, since MySQL stores it in its own."""
    columns = [
        column if comes_back(target.dialect, chunk.schema, name) else _plain_json(column)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _plain_json(texts: pa.Array) -> pa.Array:
    return pa.array(
        [
            None if text is None else json.dumps(json.loads(text), sort_keys=True)
            for text in pc.cast(texts, pa.string()).to_pylist()
        ],
        pa.string(),
    )


def behind_versions(
    target: "SqlTarget", layout: SqlTableLayout, chunk: BufferedChanges
) -> BufferedChanges:
    """Returns the changes of a history; none is earlier than the versions that the table has of its
    key, also where the clock of the source goes back."""
    if layout.mode != "scd2":
        return chunk
    last = newest(chunk.keys)
    keys = chunk.keys if last is None else chunk.keys.take(last)
    times = chunk.committed_us.to_numpy()
    found_us = _newest_times(target, layout, chunk, keys, after_us=int(times.min()))
    if found_us is None:
        return chunk
    later = np.maximum(times, found_us[key_rows_of(keys, chunk.keys)])
    return replace(chunk, committed_us=pa.array(later))


def _newest_times(
    target: "SqlTarget",
    layout: SqlTableLayout,
    chunk: BufferedChanges,
    keys: pa.RecordBatch,
    *,
    after_us: int,
) -> Int64Array | None:
    """Returns the latest time of each key's versions, as far as it is after `after_us`; None if
    there is no such version."""
    dialect, connection, schema = target.dialect, target.connect(), chunk.schema
    named = keys.rename_columns([layout.names[name] for name in keys.schema.names])
    among = dialect.among(connection, layout.table, named, is_indexed=True)
    if among is None:
        among = qualify(dialect, layout.table)
    since, until, after = (
        dialect.quote(VALID_FROM),
        dialect.quote(VALID_TO),
        moment_literal(after_us),
    )
    listed = ", ".join(select_columns(dialect, layout, schema, keys.schema.names))
    statement = (
        f"SELECT {listed}, {since}, {until} FROM {among} versions"
        f" WHERE {since} > {after} OR {until} > {after}"
    )
    fields = [schema.arrow.field(name) for name in keys.schema.names]
    fields += [pa.field(VALID_FROM, US), pa.field(VALID_TO, US)]
    found_us: Int64Array = np.full(len(keys), EVER_US)
    for page in pages_of(target, statement, schema, fields):
        rows = key_rows_of(keys, page.select(keys.schema.names))
        for name in (VALID_FROM, VALID_TO):
            times = page.column(name).cast(pa.int64()).fill_null(EVER_US).to_numpy()
            np.maximum.at(found_us, rows[rows != NONE], times[rows != NONE])
    return found_us if (found_us > EVER_US).any() else None
