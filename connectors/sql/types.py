"""Column types of a database, as SQLAlchemy reflects them, to the types of the log."""

from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import types as st
from sqlalchemy.dialects import mysql as my

from headwater.core_log.model.table_schema import Column

DIGITS_MAX = 76
TEXT_NAMES = {"JSON": "io.debezium.data.Json", "JSONB": "io.debezium.data.Json"}


class SelectedColumn(NamedTuple):
    """A column, and whether the database has to make text of it first."""

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
    """Numbers without a declared size and everything unknown travel as text."""
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
    make = pa.decimal128 if precision <= 38 else pa.decimal256
    return make(precision, scale)
