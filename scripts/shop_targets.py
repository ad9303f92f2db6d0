"""What the demo's targets hold, as rows of Python values in the order of their keys."""

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from headwater.core_log.model.table_schema import TableId
from headwater.sinks.files.formats import table as read_files

Rows = list[tuple[object, ...]]


def rows_of_arrow(rows: pa.Table) -> Rows:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def rows_in_sqlite(path: Path, table: TableId, schema: pa.Schema, *, key_columns: int) -> Rows:
    """The table of that name."""
    order = ", ".join(str(number + 1) for number in range(key_columns))
    with closing(sqlite3.connect(path, timeout=60)) as database:
        found = database.execute(f'SELECT * FROM "{table.name}" ORDER BY {order}').fetchall()
    columns = zip(*found, strict=True) if found else [()] * len(schema)
    values = [
        [value_of(stored, type_) for stored in column]
        for column, type_ in zip(columns, schema.types, strict=True)
    ]
    return list(zip(*values, strict=True))


def rows_in_files(path: Path, table: TableId, schema: pa.Schema, *, key_columns: int) -> Rows:
    """Files hold every change; the newest of each key is the row, unless it is a delete."""
    changes = read_files(str(path), str(table))
    if not changes.num_rows:
        return []
    keys = schema.names[:key_columns]
    newest = (
        changes.select([*keys, "_headwater_offset"])
        .group_by(keys)
        .aggregate([("_headwater_offset", "max")])
        .rename_columns([*keys, "_headwater_offset"])
    )
    rows = changes.join(newest, [*keys, "_headwater_offset"], join_type="left semi")
    rows = rows.filter(pa.compute.not_equal(rows["_headwater_op"], "d"))
    return rows_of_arrow(
        rows.select(schema.names).sort_by([(name, "ascending") for name in keys]).cast(schema)
    )


def value_of(stored: object, type_: pa.DataType) -> object:
    """SQLite has no decimals, times and booleans of its own."""
    if stored is None:
        return None
    if pa.types.is_decimal(type_):
        return Decimal(str(stored)).quantize(Decimal(1).scaleb(-type_.scale))
    if pa.types.is_timestamp(type_):
        moment = datetime.fromisoformat(str(stored))
        return moment.replace(tzinfo=UTC) if type_.tz else moment
    if pa.types.is_date(type_):
        return date.fromisoformat(str(stored))
    return bool(stored) if pa.types.is_boolean(type_) else stored
