"""Versions of a row follow each other, also where the clock of the source goes back."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.sinks.fold import NONE, newest
from headwater.sinks.own_columns import VALID_FROM, VALID_TO
from headwater.sinks.sql.change_buffer import BufferedChanges, moment_literal
from headwater.sinks.sql.contents import key_rows_of, pages_of, select_columns
from headwater.sinks.sql.dialects.dialect import qualify
from headwater.sinks.sql.table_layout import US, SqlTableLayout

if TYPE_CHECKING:
    from headwater.sinks.sql.target import SqlTarget

EVER_US = np.iinfo(np.int64).min


def behind_versions(
    target: "SqlTarget", layout: SqlTableLayout, chunk: BufferedChanges
) -> BufferedChanges:
    """Returns the changes of a history; none is earlier than the versions that the table has of its
    key."""
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
