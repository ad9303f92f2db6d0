"""The type of a column in the log, and its values from the binary log and from a SELECT."""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.connectors.mysql.binlog.calendar import day_of, moment_of
from headwater.connectors.mysql.binlog.json_document import json_text
from headwater.connectors.mysql.types.charsets import text_decoder
from headwater.connectors.mysql.types.column_definition import ColumnDefinition
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import Column

Convert = Callable[[Any], Any]
"""A value, which is not null, to a value of Python of the column's type."""
FromPython = Callable[[Sequence[Any], pa.DataType], pa.Array]

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
DATE_TEXT = re.compile(rb"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")
TIME_TEXT = re.compile(rb"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
AS_DOUBLE = "{} * 1e0"
"""The server writes a FLOAT with six digits, but a DOUBLE with all."""
SRID_BYTES, POINT_BYTES = 4, 21


@dataclass(frozen=True, slots=True)
class MysqlColumnPlan:
    """How one column is read. Both ways end in `build`, so that they cannot differ."""

    column: Column
    definition: ColumnDefinition
    from_log: Convert | None = None
    """None if the decoder of the log gives the value itself."""
    from_text: Convert | None = None
    """Of the bytes that a SELECT returns; None if they are the value."""
    build: FromPython = field(default=lambda values, kind: pa.array(values, kind))
    asked: str = "{}"
    """The expression of a SELECT, with the quoted name in braces."""

    def log_column(self, values: Sequence[Any]) -> pa.Array:
        return self._column(values, self.from_log)

    def text_column(self, values: Sequence[bytes | None]) -> pa.Array:
        return self._column(values, self.from_text)

    def _column(self, values: Sequence[Any], convert: Convert | None) -> pa.Array:
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        try:
            return self.build(values, self.column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeDecodeError):
            raise SourceRejected(
                "a value does not fit the type of its column",
                column=self.column.name,
                type=self.definition.column_type,
                hint="correct the value, or leave the table out of `tables`",
            ) from None


def plan_of(definition: ColumnDefinition) -> MysqlColumnPlan:
    """Returns the plan of a column whose type is supported, see `ColumnDefinition.problem`."""
    kind = definition.data_type
    if kind in INTEGERS:
        narrow, wide = INTEGERS[kind]
        return _plan(definition, wide if definition.is_unsigned else narrow, from_text=int)
    return PLANS[kind](definition)


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
    return _plan(definition, pa.float32(), from_text=float, asked=AS_DOUBLE, build=_floats)


def _floats(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    numbers = np.array([0.0 if value is None else value for value in values], np.float64)
    nulls = np.array([value is None for value in values], bool)
    return pa.array(numbers.astype(np.float32), kind, mask=nulls)


def _double(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.float64(), from_text=float, asked=AS_DOUBLE)


def _decimal(definition: ColumnDefinition) -> MysqlColumnPlan:
    size = definition.precision, definition.scale
    kind = pa.decimal128(*size) if definition.precision <= 38 else pa.decimal256(*size)
    return _plan(definition, kind, from_text=bytes.decode, build=_decimals)


def _decimals(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).cast(kind)


def _text(definition: ColumnDefinition) -> MysqlColumnPlan:
    if definition.charset in ("utf8mb4", "utf8mb3", "utf8", "ascii"):
        return _plan(definition, pa.string(), build=_utf8)
    decode = text_decoder(definition.charset, column=definition.name)
    return _plan(definition, pa.string(), from_log=decode, from_text=decode)


def _utf8(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.binary()).cast(kind)


def _bytes(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.binary())


def _padded_bytes(definition: ColumnDefinition) -> MysqlColumnPlan:
    """The log has no trailing zeros."""
    length = definition.octets
    return _plan(definition, pa.binary(), from_log=lambda value: value.ljust(length, b"\0"))


def _bit(definition: ColumnDefinition) -> MysqlColumnPlan:
    if definition.precision == 1:
        return _plan(definition, pa.bool_(), from_log=_is_set, from_text=_is_set)
    width = (definition.precision + 7) // 8

    def little(value: bytes) -> bytes:
        return value.rjust(width, b"\0")[::-1]

    length = {"length": str(definition.precision)}
    return _plan(definition, pa.binary(), BITS, length, from_log=little, from_text=little)


def _is_set(value: bytes) -> bool:
    return value[-1:] == b"\1"


def _year(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.int32(), YEAR, from_text=int)


def _date(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _temporal(definition, pa.date32(), from_text=lambda text: _parts(text)[0])


def _datetime(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _moments(definition, pa.timestamp(_unit(definition)))


def _timestamp(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _moments(definition, pa.timestamp(_unit(definition), "UTC"))


def _unit(definition: ColumnDefinition) -> str:
    return "us" if definition.fraction > 3 else "ms"


def _moments(definition: ColumnDefinition, kind: pa.TimestampType) -> MysqlColumnPlan:
    def build(values: Sequence[Any], to: pa.DataType) -> pa.Array:
        return pa.array(values, pa.timestamp("us", kind.tz)).cast(to)

    digits = definition.fraction
    shown = {} if kind.tz is None or digits in (3, 6) else {DIGITS: str(digits)}
    return _temporal(definition, kind, parameters=shown, from_text=_moment, build=build)


def _moment(text: bytes) -> int | None:
    return _parts(text)[1]


def _parts(text: bytes) -> tuple[int | None, int | None]:
    """Returns the day, and microseconds, of a date with or without a time."""
    found = DATE_TEXT.fullmatch(text)
    if found is None:
        raise SourceRejected("the server writes dates in an unknown form")
    year, month, day, hour, minute, second = (int(each or 0) for each in found.groups()[:6])
    fraction = (found[7] or b"").ljust(6, b"0")
    days = day_of(year, month, day)
    micro = int(fraction)
    return days, moment_of(days, hour=hour, minute=minute, second=second, micro=micro)


def _time(definition: ColumnDefinition) -> MysqlColumnPlan:
    return _plan(definition, pa.int64(), MICRO_TIME, from_text=_time_us)


def _time_us(text: bytes) -> int:
    found = TIME_TEXT.fullmatch(text)
    if found is None:
        raise SourceRejected("the server writes times in an unknown form")
    sign, hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    size = whole * 1_000_000 + int((fraction or b"").ljust(6, b"0"))
    return -size if sign else size


def _enum(definition: ColumnDefinition) -> MysqlColumnPlan:
    labels = ("", *definition.labels)
    decode = text_decoder(definition.charset, column=definition.name)
    allowed = {"allowed": _allowed(definition)}
    return _plan(
        definition, pa.string(), ENUM, allowed, from_log=labels.__getitem__, from_text=decode
    )


def _set(definition: ColumnDefinition) -> MysqlColumnPlan:
    labels = definition.labels
    decode = text_decoder(definition.charset, column=definition.name)

    def chosen(bits: int) -> str:
        return ",".join(label for place, label in enumerate(labels) if bits >> place & 1)

    allowed = {"allowed": _allowed(definition)}
    return _plan(definition, pa.string(), SET, allowed, from_log=chosen, from_text=decode)


def _allowed(definition: ColumnDefinition) -> str:
    return ",".join(label.replace(",", r"\,") for label in definition.labels)


def _json(definition: ColumnDefinition) -> MysqlColumnPlan:
    def from_log(value: bytes | str) -> str:
        return value if isinstance(value, str) else json_text(value)

    return _plan(definition, pa.string(), JSON, from_log=from_log, from_text=bytes.decode)


def _geometry(definition: ColumnDefinition) -> MysqlColumnPlan:
    if definition.data_type == "point":
        return _plan(definition, POINT_TYPE, POINT, from_log=_point, from_text=_point)
    return _plan(definition, GEOMETRY_TYPE, GEOMETRY, from_log=_shape, from_text=_shape)


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
    return _plan(definition, pa.list_(pa.float32()), VECTOR, from_log=_numbers, from_text=_numbers)


def _numbers(value: bytes) -> Any:
    return np.frombuffer(value[: len(value) // 4 * 4], "<f4")


def _uuid(definition: ColumnDefinition) -> MysqlColumnPlan:
    def from_log(value: bytes) -> str:
        text = value.ljust(16, b"\0").hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    return _plan(definition, pa.string(), UUID, from_log=from_log, from_text=bytes.decode)


def _inet4(definition: ColumnDefinition) -> MysqlColumnPlan:
    def from_log(value: bytes) -> str:
        return ".".join(map(str, value.ljust(4, b"\0")))

    return _plan(definition, pa.string(), from_log=from_log, from_text=bytes.decode)


def _inet6(definition: ColumnDefinition) -> MysqlColumnPlan:
    """The text of the address, as the SELECT asks for its bytes as well."""
    return _plan(
        definition,
        pa.string(),
        from_log=inet6_text,
        from_text=inet6_text,
        asked="CAST({} AS BINARY(16))",
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
