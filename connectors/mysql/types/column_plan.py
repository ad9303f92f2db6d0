"""The type of a column in the log, and its values from the binary log and from a SELECT."""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.connectors.mysql.binlog.wire_columns import days_of, moments_of
from headwater.connectors.mysql.kernels.kernels import chosen_kernels
from headwater.connectors.mysql.types.column_definition import ColumnDefinition, text_decoder
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import Column
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets, is_valid, numbers_column

ReadColumn = Callable[[pa.Array, pa.DataType], pa.Array]
"""A column as the log or a SELECT has it, to a column of the type in our log."""
Convert = Callable[[Any], Any]
"""A value, which is not null, to a value of Python of the column's type."""

DATA = "io.debezium.data"
JSON, ENUM, SET, BITS = f"{DATA}.Json", f"{DATA}.Enum", f"{DATA}.EnumSet", f"{DATA}.Bits"
UUID, VECTOR = f"{DATA}.Uuid", f"{DATA}.FloatVector"
YEAR, MICRO_TIME = "io.debezium.time.Year", "io.debezium.time.MicroTime"
POINT, GEOMETRY = f"{DATA}.geometry.Point", f"{DATA}.geometry.Geometry"
POINT_TYPE = pa.struct(
    [("x", pa.float64()), ("y", pa.float64()), ("wkb", pa.binary()), ("srid", pa.int32())]
)
GEOMETRY_TYPE = pa.struct([("wkb", pa.binary()), ("srid", pa.int32())])
DIGITS = "digits"
DATE_BYTES, SECOND_BYTES, POINT_AT = 10, 19, 20
"""Widths of a date and of a moment without fraction, and where the fraction begins."""
TIME_TEXT = re.compile(rb"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
AS_DOUBLE = "{} * 1e0"
"""The server writes a FLOAT with six digits, but a DOUBLE with all."""
SRID_BYTES, POINT_BYTES = 4, 21
UTF8 = ("utf8mb4", "utf8mb3", "utf8", "ascii")


def as_it_is(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(kind)


def from_digits(values: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    return values.cast(pa.string()).cast(kind)


def by_value(convert: Convert) -> ReadColumn:
    """Returns what converts one value after the other: for rare types."""

    def read(values: pa.Array, kind: pa.DataType) -> pa.Array:
        found = [None if value is None else convert(value) for value in values.to_pylist()]
        return pa.array(found, kind)

    return read


@dataclass(frozen=True, slots=True)
class MysqlColumnPlan:
    """How one column is read. A test compares both ways for every type."""

    column: Column
    definition: ColumnDefinition
    from_log: ReadColumn = as_it_is
    """From what `read_rows` returns."""
    from_text: ReadColumn = as_it_is
    """From the bytes that a SELECT returns."""
    asked: str = "{}"
    """The expression of a SELECT, with the quoted name in braces."""

    def log_column(self, values: pa.Array) -> pa.Array:
        return self._column(values, self.from_log)

    def text_column(self, values: pa.BinaryArray) -> pa.Array:
        return self._column(values, self.from_text)

    def _column(self, values: pa.Array, read: ReadColumn) -> pa.Array:
        try:
            return read(values, self.column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeDecodeError):
            raise SourceRejected(
                "a value does not fit the type of its column",
                column=self.column.name,
                type=self.definition.column_type,
                hint="correct the value, or leave the table out of `tables`",
            ) from None


def plan_of(definition: ColumnDefinition) -> MysqlColumnPlan:
    """Returns the plan of a column whose type is supported, see `ColumnDefinition.problem`."""
    if definition.data_type in INTEGERS:
        narrow, wide = INTEGERS[definition.data_type]
        kind = wide if definition.is_unsigned else narrow
        return _plan(definition, kind, from_text=from_digits)
    return PLANS[definition.data_type](definition)


INTEGERS = {
    "tinyint": (pa.int16(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.uint64()),
}
"""Types of signed and of unsigned columns."""


def _plan(
    definition: ColumnDefinition,
    kind: pa.DataType,
    semantic: str = "",
    parameters: Mapping[str, str] | None = None,
    *,
    is_nullable: bool | None = None,
    **how: Any,
) -> MysqlColumnPlan:
    can_be_null = definition.is_nullable if is_nullable is None else is_nullable
    column = Column(definition.name, kind, can_be_null, semantic, parameters or {})
    return MysqlColumnPlan(column, definition, **how)


def _temporal(definition: ColumnDefinition, kind: pa.DataType, **how: Any) -> MysqlColumnPlan:
    """A date that no calendar has becomes null, even if the column has no nulls."""
    return _plan(definition, kind, is_nullable=not definition.is_key, **how)


def _float(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.float32(), from_text=_floats, asked=AS_DOUBLE)


def _floats(values: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    numbers = from_digits(values, pa.float64())
    found = numbers.fill_null(0.0).to_numpy().astype(np.float32)
    return numbers_column(kind, found, like=numbers)


def _double(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.float64(), from_text=from_digits, asked=AS_DOUBLE)


def _decimal(definition: ColumnDefinition) -> MysqlColumnPlan:
    size = definition.precision, definition.scale
    kind = pa.decimal128(*size) if definition.precision <= 38 else pa.decimal256(*size)
    return _plan(definition, kind, from_text=from_digits)


def _text(definition: ColumnDefinition) -> MysqlColumnPlan:
    if definition.charset in UTF8:
        return _plan(definition, pa.string())
    decode = by_value(text_decoder(definition.charset, column=definition.name))
    return _plan(definition, pa.string(), from_log=decode, from_text=decode)


def _bytes(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.binary())


def _padded_bytes(definition: ColumnDefinition) -> MysqlColumnPlan:
    """The log has no trailing zeros."""
    length = definition.octets
    pad = by_value(lambda value: value.ljust(length, b"\0"))
    return _plan(definition, pa.binary(), from_log=pad)


def _bit(definition: ColumnDefinition) -> MysqlColumnPlan:
    if definition.precision == 1:
        read = by_value(lambda value: value[-1:] == b"\1")
        return _plan(definition, pa.bool_(), from_log=read, from_text=read)
    width = (definition.precision + 7) // 8

    little = by_value(lambda value: value.rjust(width, b"\0")[::-1])
    length = {"length": str(definition.precision)}
    return _plan(definition, pa.binary(), BITS, length, from_log=little, from_text=little)


def _year(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.int32(), YEAR, from_text=from_digits)


def _date(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _temporal(definition, pa.date32(), from_text=_dates)


def _datetime(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _moments(definition, pa.timestamp(_unit(definition)))


def _timestamp(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _moments(definition, pa.timestamp(_unit(definition), "UTC"))


def _unit(definition: ColumnDefinition) -> str:
    return "us" if definition.fraction > 3 else "ms"


def _moments(definition: ColumnDefinition, kind: pa.TimestampType) -> MysqlColumnPlan:
    digits = definition.fraction
    shown = {} if kind.tz is None or digits in (3, 6) else {DIGITS: str(digits)}
    return _temporal(
        definition, kind, parameters=shown, from_log=_logged_moments, from_text=_moment_texts
    )


def _logged_moments(values: pa.Int64Array, kind: pa.DataType) -> pa.Array:
    return values.view(pa.timestamp("us", kind.tz)).cast(kind)


def _dates(values: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    digits = _digits_of(values)
    days, is_real = days_of(digits(0, 4), digits(5, 2), digits(8, 2))
    return pa.array(days.astype(np.int32), mask=~(is_real & is_valid(values))).view(kind)


def _moment_texts(values: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    digits = _digits_of(values)
    days, is_real = days_of(digits(0, 4), digits(5, 2), digits(8, 2))
    moments = moments_of(days, digits(11, 2), digits(14, 2), digits(17, 2), digits(POINT_AT, 6))
    found = pa.array(moments, mask=~(is_real & is_valid(values)))
    return _logged_moments(found, kind)


def _digits_of(values: pa.BinaryArray) -> Callable[[int, int], Int64Array]:
    """Returns what reads a number from the same place of all texts; a missing digit is a zero."""
    data, offsets = bytes_and_offsets(values)
    widths = np.diff(offsets)[is_valid(values)]
    width = int(widths[0]) if len(widths) else DATE_BYTES
    if (widths != width).any() or not (width == DATE_BYTES or width >= SECOND_BYTES):
        raise SourceRejected("the server writes dates in an unknown form")
    texts = np.full((len(values), width), ord("0"), np.uint8)
    texts[is_valid(values)] = data.reshape(-1, width)

    def read(first: int, count: int) -> Int64Array:
        found = np.zeros(len(texts), np.int64)
        for at in range(first, first + count):
            digits = texts[:, at].astype(np.int64) - ord("0") if at < width else 0
            found = found * 10 + digits
        return found

    return read


def _time(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.int64(), MICRO_TIME, from_text=by_value(_time_us))


def _time_us(text: bytes) -> int:
    found = TIME_TEXT.fullmatch(text)
    if found is None:
        raise SourceRejected("the server writes times in an unknown form")
    sign, hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    size = whole * 1_000_000 + int((fraction or b"").ljust(6, b"0"))
    return -size if sign else size


def _enum(definition: ColumnDefinition) -> MysqlColumnPlan:
    labels = pa.array(["", *definition.labels], pa.string())

    def chosen(numbers: pa.Array, _: pa.DataType) -> pa.Array:
        try:
            return labels.take(numbers)
        except IndexError:
            raise OverflowError from None

    allowed = {"allowed": _allowed(definition)}
    return _plan(
        definition, pa.string(), ENUM, allowed, from_log=chosen, from_text=_labels(definition)
    )


def _set(definition: ColumnDefinition) -> MysqlColumnPlan:
    labels = definition.labels

    @cache
    def chosen(bits: int) -> str:
        return ",".join(label for place, label in enumerate(labels) if bits >> place & 1)

    allowed = {"allowed": _allowed(definition)}
    return _plan(
        definition, pa.string(), SET, allowed,
        from_log=by_value(chosen), from_text=_labels(definition),
    )  # fmt: skip


def _labels(definition: ColumnDefinition) -> ReadColumn:
    if definition.charset in UTF8:
        return as_it_is
    return by_value(text_decoder(definition.charset, column=definition.name))


def _allowed(definition: ColumnDefinition) -> str:
    return ",".join(label.replace(",", r"\,") for label in definition.labels)


def _json(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.string(), JSON, from_log=_documents)


def _documents(values: pa.BinaryArray, _: pa.DataType) -> pa.StringArray:
    return chosen_kernels().documents(values)


def _geometry(definition: ColumnDefinition) -> MysqlColumnPlan:
    if definition.data_type == "point":
        point = by_value(_point)
        return _plan(definition, POINT_TYPE, POINT, from_log=point, from_text=point)
    shape = by_value(_shape)
    return _plan(definition, GEOMETRY_TYPE, GEOMETRY, from_log=shape, from_text=shape)


def _shape(value: bytes) -> dict[str, Any]:
    srid = int.from_bytes(value[:SRID_BYTES], "little")
    return {"wkb": value[SRID_BYTES:], "srid": srid or None}


def _point(value: bytes) -> dict[str, Any]:
    shape = _shape(value)
    if len(shape["wkb"]) != POINT_BYTES:
        raise SourceRejected("a point has another form than well-known binary has")
    x, y = struct.unpack_from("<dd", shape["wkb"], POINT_BYTES - 16)
    return {"x": x, "y": y, **shape}


def _vector(definition: ColumnDefinition) -> MysqlColumnPlan:
    read = by_value(_numbers)
    return _plan(definition, pa.list_(pa.float32()), VECTOR, from_log=read, from_text=read)


def _numbers(value: bytes) -> Any:
    return np.frombuffer(value[: len(value) // 4 * 4], "<f4")


def _uuid(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.string(), UUID, from_log=by_value(_uuid_text))


def _uuid_text(value: bytes) -> str:
    text = value.ljust(16, b"\0").hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _inet4(definition: ColumnDefinition) -> MysqlColumnPlan:
    read = by_value(lambda value: ".".join(map(str, value.ljust(4, b"\0"))))
    return _plan(definition, pa.string(), from_log=read)


def _inet6(definition: ColumnDefinition) -> MysqlColumnPlan:
    """The text of the address, as the SELECT asks for its bytes as well."""
    read = by_value(inet6_text)
    return _plan(
        definition, pa.string(), from_log=read, from_text=read, asked="CAST({} AS BINARY(16))"
    )


def inet6_text(value: bytes) -> str:
    """Returns the text of an address as the server writes it."""
    from ipaddress import IPv6Address

    return str(IPv6Address(value.ljust(16, b"\0")))


PLANS: Mapping[str, Callable[[ColumnDefinition], MysqlColumnPlan]] = {
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "char": _text,
    "varchar": _text,
    "tinytext": _text,
    "text": _text,
    "mediumtext": _text,
    "longtext": _text,
    "binary": _padded_bytes,
    "varbinary": _bytes,
    "tinyblob": _bytes,
    "blob": _bytes,
    "mediumblob": _bytes,
    "longblob": _bytes,
    "bit": _bit,
    "year": _year,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "enum": _enum,
    "set": _set,
    "json": _json,
    "geometry": _geometry,
    "point": _geometry,
    "linestring": _geometry,
    "polygon": _geometry,
    "multipoint": _geometry,
    "multilinestring": _geometry,
    "multipolygon": _geometry,
    "geometrycollection": _geometry,
    "geomcollection": _geometry,
    "vector": _vector,
    "uuid": _uuid,
    "inet4": _inet4,
    "inet6": _inet6,
}
