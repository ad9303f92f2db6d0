"""Compares changes with the rows that a history has of their keys, by values and by times."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation
from headwater.core_log.rows.digests import digests_of
from headwater.sinks.fold import NONE, FormerRows, find_repeated, newest
from headwater.sinks.own_columns import VALID_FROM, VALID_TO
from headwater.sinks.sql.change_buffer import BufferedChanges, moment_literal
from headwater.sinks.sql.contents import (
    comes_back,
    key_rows_of,
    pages_of,
    question_of,
    select_columns,
)
from headwater.sinks.sql.dialects.dialect import qualify
from headwater.sinks.sql.table_layout import US, SqlTableLayout

if TYPE_CHECKING:
    from headwater.sinks.sql.target import SqlTarget

HISTORIES = ("append", "scd2")

EVER_US = np.iinfo(np.int64).min


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
