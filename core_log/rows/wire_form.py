"""How a column's values look on the wire: Debezium's types, names and modes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from core_log.errors import DecodeError
from core_log.joining import Kind
from core_log.rows import byte_text, decimals, time_text
from core_log.rows.settings import WireSettings
from core_log.table_schema import Column

BITS, DECIMAL = "io.debezium.data.Bits", "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
VECTORS = ("io.debezium.data.DoubleVector", "io.debezium.data.FloatVector")
CONNECT_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}
WIDENED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
"""Java has no unsigned numbers: the next wider type carries them."""

Conversion = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class WireForm:
    """One column's form. What is converted may raise `ValueError`; `None` means that nothing is.

    `type` is made of booleans, signed integers, floats, strings, bytes, lists and structs.
    """

    type: pa.DataType
    name: str = ""
    """What Connect and Debezium call the meaning, such as `io.debezium.time.Date`."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    to_wire: Conversion | None = None
    from_wire: Conversion | None = None
    parts: tuple["WireForm", ...] = ()
    """The forms of a list's items, or of a struct's fields."""
    required: frozenset[str] = frozenset()
    """Fields of a struct that are never null; what `to_wire` makes says so, too."""
    doc: str = ""
    """What Debezium's schema says of itself."""
    direct: Kind | None = None
    """How JSON takes the column as it is, where there is no need of `to_wire` for that."""

    def written(self, column: pa.Array) -> pa.Array:
        return column if self.to_wire is None else self.to_wire(column)

    def read(self, column: pa.Array) -> pa.Array:
        return column if self.from_wire is None else self.from_wire(column)

    def connect_schema(self, *, is_optional: bool) -> dict[str, Any]:
        """In the order in which Kafka Connect's JsonConverter writes it."""
        if pa.types.is_struct(self.type):
            fields = [
                part.connect_schema(is_optional=member.name not in self.required)
                | {"field": member.name}
                for member, part in zip(self.type, self.parts, strict=True)
            ]
            schema: dict[str, Any] = {"type": "struct", "fields": fields}
        elif pa.types.is_list(self.type):
            items = self.parts[0].connect_schema(is_optional=True)
            schema = {"type": "array", "items": items}
        else:
            schema = {"type": CONNECT_NAMES[self.type]}
        schema["optional"] = is_optional
        if self.name:
            schema |= {"name": self.name, "version": 1}
        if self.doc:
            schema["doc"] = self.doc
        if self.parameters:
            schema["parameters"] = dict(self.parameters)
        return schema


GEOMETRIES = "io.debezium.data.geometry"
SHAPES: Mapping[str, tuple[str, frozenset[str]]] = {
    f"{GEOMETRIES}.Point": ("Geometry (POINT)", frozenset(("x", "y"))),
    f"{GEOMETRIES}.Geometry": ("Geometry", frozenset(("wkb",))),
    f"{GEOMETRIES}.Geography": ("Geography", frozenset(("wkb",))),
}
"""What Debezium's schemas of shapes say, and which of their fields are never null."""


def form_of(column: Column, wire: WireSettings) -> WireForm:
    return _form(column.type, column.semantic, column.parameters, wire)


def _form(
    kind: pa.DataType, semantic: str, parameters: Mapping[str, str], wire: WireSettings
) -> WireForm:
    if pa.types.is_list(kind):
        return _list_form(kind, semantic, parameters, wire)
    if pa.types.is_struct(kind):
        return _struct_form(kind, semantic, parameters, wire)
    if pa.types.is_decimal(kind):
        return _decimal_form(kind, parameters, wire)
    if kind == pa.uint64():
        return _through(pa.decimal128(20, 0), kind, wire)
    if kind in WIDENED:
        wide = WIDENED[kind]
        return WireForm(
            wide,
            semantic,
            parameters,
            lambda column: column.cast(wide),
            lambda column: column.cast(kind),
        )
    if kind == pa.binary():
        return _binary_form(semantic, parameters, wire)
    if kind == pa.string() and semantic in (VARIABLE_SCALE, DECIMAL):
        return _long_decimal_form(semantic, parameters, wire)
    if pa.types.is_temporal(kind):
        return _temporal_form(kind, parameters, wire)
    if kind not in CONNECT_NAMES:
        raise DecodeError("a column of this type has no place in the log", type=str(kind))
    return WireForm(kind, semantic, parameters)


def _through(middle: pa.DataType, kind: pa.DataType, wire: WireSettings) -> WireForm:
    form = _form(middle, "", {}, wire)
    return WireForm(
        form.type,
        form.name,
        form.parameters,
        lambda column: form.written(column.cast(middle)),
        lambda column: form.read(column).cast(kind),
    )


def _list_form(
    kind: pa.DataType, semantic: str, parameters: Mapping[str, str], wire: WireSettings
) -> WireForm:
    is_vector = semantic in VECTORS
    item = _form(kind.value_type, "" if is_vector else semantic, parameters, wire)
    wire_type, name = pa.list_(item.type), semantic if is_vector else ""
    if item.to_wire is None:
        return WireForm(wire_type, name, parts=(item,))
    return WireForm(
        wire_type,
        name,
        to_wire=lambda column: _with_items(column, item.written),
        from_wire=lambda column: _with_items(column, item.read),
        parts=(item,),
    )


def _with_items(column: pa.Array, convert: Conversion) -> pa.Array:
    items = convert(column.flatten())
    counts = pc.list_value_length(column).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(offsets, items, mask=mask)


def _struct_form(
    kind: pa.DataType, semantic: str, parameters: Mapping[str, str], wire: WireSettings
) -> WireForm:
    names = [member.name for member in kind]
    doc, required = SHAPES.get(semantic, ("", frozenset()))
    if semantic in SHAPES:  # their bytes have one form, whatever other bytes have
        wire = wire.model_copy(update={"binary": "bytes"})
    parts = tuple(_form(member.type, "", {}, wire) for member in kind)
    wire_type = pa.struct(
        [pa.field(name, part.type) for name, part in zip(names, parts, strict=True)]
    )
    if required:
        return WireForm(
            wire_type,
            semantic,
            parameters,
            lambda column: with_required(column, required),
            parts=parts,
            required=required,
            doc=doc,
        )
    if all(part.to_wire is None for part in parts):
        return WireForm(wire_type, semantic, parameters, parts=parts)
    return WireForm(
        wire_type,
        semantic,
        parameters,
        lambda column: _with_members(column, [part.written for part in parts]),
        lambda column: _with_members(column, [part.read for part in parts]),
        parts,
    )


def with_required(column: pa.StructArray, required: frozenset[str]) -> pa.StructArray:
    """The same with fields that are declared never to be null; they are not, where the whole is
    there."""
    fields = [member.with_nullable(member.name not in required) for member in column.type]
    members = [
        values if field.nullable else _filled(values)
        for field, values in zip(fields, column.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(members, fields=fields, mask=column.is_null())


def _filled(values: pa.Array) -> pa.Array:
    return values.fill_null(b"" if pa.types.is_binary(values.type) else 0)


def _with_members(column: pa.Array, conversions: list[Conversion]) -> pa.Array:
    members = [
        convert(member) for convert, member in zip(conversions, column.flatten(), strict=True)
    ]
    fields = [
        pa.field(old.name, member.type) for old, member in zip(column.type, members, strict=True)
    ]
    return pa.StructArray.from_arrays(members, fields=fields, mask=column.is_null())


def _decimal_form(kind: pa.DataType, parameters: Mapping[str, str], wire: WireSettings) -> WireForm:
    """`parameters` are what the schema says where the type alone would say something else."""
    match wire.decimal:
        case "string":
            return WireForm(
                pa.string(),
                to_wire=decimals.decimal_to_text,
                from_wire=lambda column: decimals.text_to_decimal(column, kind),
                direct=Kind.DECIMAL,
            )
        case "double":
            return WireForm(
                pa.float64(),
                # By way of text: Arrow's own cast is off by a bit now and then.
                to_wire=lambda column: decimals.decimal_to_text(column).cast(pa.float64()),
                from_wire=lambda column: column.cast(kind),
            )
        case "precise":
            declared = {
                "scale": str(kind.scale),
                "connect.decimal.precision": str(kind.precision),
            }
            return WireForm(
                pa.binary(),
                DECIMAL,
                parameters or declared,
                decimals.decimal_to_bytes,
                lambda column: decimals.bytes_to_decimal(column, kind),
            )


def _long_decimal_form(
    semantic: str, parameters: Mapping[str, str], wire: WireSettings
) -> WireForm:
    """Numbers that no Arrow type holds travel as text inside of us, whatever is on the wire."""
    match wire.decimal:
        case "string":
            return WireForm(
                pa.string(), to_wire=decimals.to_java_words, from_wire=decimals.from_java_words
            )
        case "double":
            return WireForm(
                pa.float64(),
                to_wire=lambda column: column.cast(pa.float64()),
                from_wire=decimals.double_to_text,
            )
        case "precise" if semantic == VARIABLE_SCALE:
            return WireForm(
                decimals.VARIABLE_SCALE,
                semantic,
                {},
                decimals.text_to_variable_scale,
                decimals.variable_scale_to_text,
                (WireForm(pa.int32()), WireForm(pa.binary())),
                frozenset(("scale", "value")),
                "Variable scaled decimal",
            )
        case "precise":
            scale = int(parameters.get("scale", "0"))
            return WireForm(
                pa.binary(),
                semantic,
                parameters,
                lambda column: decimals.text_to_scaled(column, scale=scale),
                lambda column: decimals.scaled_to_text(column, scale=scale),
            )


def _binary_form(semantic: str, parameters: Mapping[str, str], wire: WireSettings) -> WireForm:
    if wire.binary == "bytes" or semantic == BITS:
        return WireForm(pa.binary(), semantic, parameters)
    if wire.binary == "hex":
        return WireForm(pa.string(), semantic, parameters, byte_text.to_hex, byte_text.from_hex)
    is_safe = wire.binary == "base64-url-safe"
    alphabet = byte_text.URL_SAFE if is_safe else byte_text.STANDARD
    return WireForm(
        pa.string(),
        semantic,
        parameters,
        lambda column: byte_text.to_base64(column, alphabet=alphabet),
        lambda column: byte_text.from_base64(column, alphabet=alphabet),
    )


def _temporal_form(
    kind: pa.DataType, parameters: Mapping[str, str], wire: WireSettings
) -> WireForm:
    if pa.types.is_timestamp(kind):
        return _zoned_form(kind, parameters) if kind.tz is not None else _timestamp_form(kind, wire)
    if pa.types.is_date32(kind):
        return _date_form(wire)
    if pa.types.is_time(kind):
        return _time_form(kind, wire)
    raise DecodeError("a column of this type has no place in the log", type=str(kind))


def _zoned_form(kind: pa.DataType, parameters: Mapping[str, str]) -> WireForm:
    digits = int(parameters.get(time_text.DIGITS, time_text.UNIT_DIGITS[kind.unit]))
    return WireForm(
        pa.string(),
        "io.debezium.time.ZonedTimestamp",
        to_wire=lambda column: time_text.moments_to_text(column, digits=digits),
        from_wire=lambda column: time_text.text_to_moments(column, kind),
        direct=Kind.MOMENT if digits == time_text.UNIT_DIGITS[kind.unit] else None,
    )


def _timestamp_form(kind: pa.DataType, wire: WireSettings) -> WireForm:
    if wire.time == "isostring":
        return WireForm(
            pa.string(),
            "io.debezium.time.IsoTimestamp",
            to_wire=time_text.moments_to_bare_text,
            from_wire=lambda column: time_text.text_to_moments(column, kind),
        )
    if wire.time == "nanoseconds" and kind.unit != "ns":
        return WireForm(
            pa.int64(),
            "io.debezium.time.NanoTimestamp",
            to_wire=time_text.moments_to_nanos,
            from_wire=lambda column: time_text.nanos_to_moments(column, kind),
        )
    unit = _unit_on_wire(kind.unit, wire)
    name = {"ms": "Timestamp", "us": "MicroTimestamp", "ns": "NanoTimestamp"}[unit]
    return WireForm(
        pa.int64(),
        _time_name(name, wire),
        to_wire=lambda column: time_text.rescale(column, unit=kind.unit, to=unit, kind=pa.int64()),
        from_wire=lambda column: time_text.rescale(
            column, unit=unit, to=kind.unit, kind=pa.int64()
        ).view(kind),
    )


def _unit_on_wire(unit: str, wire: WireSettings) -> str:
    match wire.time:
        case "connect":
            return "ms"
        case "microseconds":
            return "us"
        case "nanoseconds":
            return "ns"
        case _:
            return "ms" if unit == "s" else unit


def _time_name(name: str, wire: WireSettings) -> str:
    package = "org.apache.kafka.connect.data" if wire.time == "connect" else "io.debezium.time"
    return f"{package}.{name}"


def _date_form(wire: WireSettings) -> WireForm:
    if wire.time == "isostring":
        return WireForm(
            pa.string(),
            "io.debezium.time.IsoDate",
            to_wire=time_text.dates_to_text,
            from_wire=time_text.text_to_dates,
        )
    return WireForm(
        pa.int32(),
        _time_name("Date", wire),
        to_wire=lambda column: column.view(pa.int32()),
        from_wire=lambda column: column.view(pa.date32()),
    )


def _time_form(kind: pa.DataType, wire: WireSettings) -> WireForm:
    if wire.time == "isostring":
        return WireForm(
            pa.string(),
            "io.debezium.time.IsoTime",
            to_wire=time_text.times_to_text,
            from_wire=lambda column: time_text.text_to_times(column, kind),
        )
    unit = "us" if wire.time == "adaptive_time_microseconds" else _unit_on_wire(kind.unit, wire)
    wire_type = pa.int32() if unit == "ms" else pa.int64()
    stored = pa.int32() if kind.unit in ("s", "ms") else pa.int64()
    name = {"ms": "Time", "us": "MicroTime", "ns": "NanoTime"}[unit]
    return WireForm(
        wire_type,
        _time_name(name, wire),
        to_wire=lambda column: time_text.rescale(
            column.view(stored), unit=kind.unit, to=unit, kind=wire_type
        ),
        from_wire=lambda column: _checked_time(
            time_text.rescale(column, unit=unit, to=kind.unit, kind=stored).view(kind)
        ),
    )


def _checked_time(column: pa.Array) -> pa.Array:
    """PostgreSQL's 24:00:00 is a time of day; what lies beyond is none."""
    numbers = column.view(pa.int32() if pa.types.is_time32(column.type) else pa.int64())
    bound = 86_400 * time_text.PER_SECOND[column.type.unit]
    is_inside = pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, bound))
    if not is_inside.fill_null(True).to_numpy(zero_copy_only=False).all():
        raise ValueError("this is no time of day")
    return column
