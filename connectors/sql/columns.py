"""Converts a driver's values to Arrow columns: whole columns are parsed, never single values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import types as st
from sqlalchemy.dialects import mysql as my

from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.rows.schema_text import decimal_type
from headwater.core_log.rows.text.bytes import from_hex
from headwater.core_log.rows.text.datetime import text_to_times
from headwater.core_log.rows.text.number import text_to_booleans, value_text


def batch_of(schema: TableSchema, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    arrays = [
        column_of(values, column.type, name=column.name, table=str(schema.table))
        for values, column in zip(columns, schema.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def columns_of(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


def column_of(values: Any, kind: pa.DataType, *, name: str, table: str) -> pa.Array:
    """Returns the column. Texts are parsed as `kind`, other values are taken as they are; raises
    `SourceRejected` for values that are neither."""
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return _parse(values, kind)
        if any(isinstance(value, str) for value in values) and not pa.types.is_string(kind):
            return _parse(pa.array([value_text(value) for value in values], pa.string()), kind)
        if pa.types.is_string(kind):
            return pa.array([value_text(value) for value in values], pa.string())
        if pa.types.is_decimal(kind):
            return pa.array([value_text(value) for value in values], pa.string()).cast(kind)
        if pa.types.is_boolean(kind):
            return text_to_booleans(pa.array([value_text(value) for value in values], pa.string()))
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError):
        raise SourceRejected(
            "a column has values that are not of its type",
            table=table,
            column=name,
            type=str(kind),
            hint="leave the column out with `transform: drop`, or correct it at the source",
        ) from None


def _parse(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if texts.type == kind:
        return texts
    if pa.types.is_string(texts.type):
        if pa.types.is_boolean(kind):
            return text_to_booleans(texts)
        if pa.types.is_binary(kind):
            return from_hex(texts, prefix=r"\x")
        if pa.types.is_time(kind):
            return text_to_times(texts, kind)
    return texts.cast(kind)


DIGITS_MAX = 76
TEXT_NAMES = {"JSON": "io.debezium.data.Json", "JSONB": "io.debezium.data.Json"}


class SelectedColumn(NamedTuple):
    """A column, and whether the database must convert it to text."""

    column: Column
    as_text: bool = False


INTEGERS: tuple[tuple[Any, pa.DataType, pa.DataType], ...] = (
    (my.TINYINT, pa.int8(), pa.uint8()),
    (st.SmallInteger, pa.int16(), pa.uint16()),
    (st.BigInteger, pa.int64(), pa.uint64()),
    (st.Integer, pa.int32(), pa.uint32()),
)
PLAIN: tuple[tuple[Any, pa.DataType], ...] = (
    (st.Boolean, pa.bool_()),
    ((st.REAL, my.FLOAT), pa.float32()),
    (st.Float, pa.float64()),
    (st.Date, pa.date32()),
    (st.Time, pa.time64("us")),
    (st.LargeBinary, pa.binary()),
    ((my.BINARY, my.VARBINARY), pa.binary()),
    ((st.Enum, st.String), pa.string()),
)


def reading_of(name: str, kind: Any, *, is_nullable: bool, dialect: str) -> SelectedColumn:
    """Returns how to read a column. Numbers without a declared size and unknown types are read as
    text."""
    column = Column(name, pa.string(), is_nullable)
    visit = type(kind).__name__.upper()
    if visit in TEXT_NAMES or isinstance(kind, st.JSON):
        return SelectedColumn(Column(name, pa.string(), is_nullable, "io.debezium.data.Json"), True)
    if isinstance(kind, st.Uuid):
        return SelectedColumn(Column(name, pa.string(), is_nullable, "io.debezium.data.Uuid"), True)
    found = _type_of(kind, dialect)
    if found is None:
        return SelectedColumn(column, as_text=True)
    return SelectedColumn(Column(name, found, is_nullable))


def _type_of(kind: Any, dialect: str) -> pa.DataType | None:
    if isinstance(kind, my.TINYINT) and kind.display_width == 1:
        return pa.bool_()
    if isinstance(kind, st.Integer) and dialect == "sqlite":
        return pa.int64()
    if isinstance(kind, st.Float) and dialect == "sqlite":
        return pa.float64()
    for types, signed, unsigned in INTEGERS:
        if isinstance(kind, types):
            return unsigned if getattr(kind, "unsigned", False) else signed
    if isinstance(kind, st.Numeric) and not isinstance(kind, st.Float):
        return _decimal(kind, dialect)
    if isinstance(kind, st.DateTime):
        return pa.timestamp("us", "UTC") if kind.timezone else pa.timestamp("us")
    if isinstance(kind, my.FLOAT):
        return pa.float32()
    return next((found for types, found in PLAIN if isinstance(kind, types)), None)


def _decimal(kind: Any, dialect: str) -> pa.DataType | None:
    precision, scale = kind.precision, kind.scale or 0
    if precision is None and dialect == "mysql":
        precision = 10
    if precision is None or precision > DIGITS_MAX or not 0 <= scale <= precision:
        return None
    return decimal_type(precision, scale)
