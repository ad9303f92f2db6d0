"""The wire form of a table's columns: Debezium's types, names and modes."""

import json
from collections.abc import Mapping

import pyarrow as pa

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import Column
from headwater.core_log.records.row_writer import ValueEncoding
from headwater.core_log.rows.arrow_buffers import list_like
from headwater.core_log.rows.connect_schema import (
    CONNECT_NAMES,
    DECIMAL,
    Conversion,
    Converter,
)
from headwater.core_log.rows.converters.time import temporal_form
from headwater.core_log.rows.settings import WireSettings
from headwater.core_log.rows.text import bytes, number

JSON = "io.debezium.data.Json"
FORM, AS_MAP = "form", "map"
"""A parameter of JSON columns, and its value if the wire has a map for them."""
MAP = pa.map_(pa.string(), pa.string())
BITS = "io.debezium.data.Bits"
VECTORS = ("io.debezium.data.DoubleVector", "io.debezium.data.FloatVector")
WIDENED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
"""The next wider signed type: Java has no unsigned numbers."""

GEOMETRIES = "io.debezium.data.geometry"
SHAPES: Mapping[str, tuple[str, frozenset[str]]] = {
    f"{GEOMETRIES}.Point": ("Geometry (POINT)", frozenset(("x", "y"))),
    f"{GEOMETRIES}.Geometry": ("Geometry", frozenset(("wkb",))),
    f"{GEOMETRIES}.Geography": ("Geography", frozenset(("wkb",))),
}
"""Debezium's schemas of geometric types, and their fields that are never null."""


def form_of(column: Column, wire: WireSettings) -> Converter:
    return _form(column.type, column.semantic, column.parameters, wire)


def _form(
    kind: pa.DataType, semantic: str, parameters: Mapping[str, str], wire: WireSettings
) -> Converter:
    if pa.types.is_list(kind):
        return _list_form(kind, semantic, parameters, wire)
    if pa.types.is_struct(kind):
        return _struct_form(kind, semantic, parameters, wire)
    if pa.types.is_decimal(kind):
        return decimal_form(kind, parameters, wire)
    if kind == pa.uint64():
        return _through(pa.decimal128(20, 0), kind, wire)
    if kind in WIDENED:
        wide = WIDENED[kind]
        return Converter(
            wide,
            semantic,
            parameters,
            lambda column: column.cast(wide),
            lambda column: column.cast(kind),
        )
    if kind == pa.binary():
        return _binary_form(semantic, parameters, wire)
    if kind == pa.string():
        return _text_form(semantic, parameters, wire)
    if pa.types.is_temporal(kind):
        return temporal_form(kind, parameters, wire)
    if kind not in CONNECT_NAMES:
        raise DecodeError("a column of this type is not supported by the log", type=str(kind))
    return Converter(kind, semantic, parameters)


def _text_form(semantic: str, parameters: Mapping[str, str], wire: WireSettings) -> Converter:
    """Returns the converter of text, and of types that are kept as text because no type holds all
    their values."""
    if parameters.get(FORM) == AS_MAP:
        return Converter(MAP, to_wire=_to_maps, from_wire=_from_maps)
    if semantic in (VARIABLE_SCALE, DECIMAL):
        return long_decimal_form(semantic, parameters, wire)
    return Converter(pa.string(), semantic, parameters)


def _to_maps(column: pa.Array) -> pa.MapArray:
    """Converts objects whose members are strings or null, one by one: few tables have them."""
    return pa.array(
        [None if text is None else list(json.loads(text).items()) for text in column.to_pylist()],
        MAP,
    )


def _from_maps(column: pa.MapArray) -> pa.Array:
    return pa.array(
        [None if pairs is None else object_text(dict(pairs)) for pairs in column.to_pylist()],
        pa.string(),
    )


def object_text(pairs: dict[str, str | None]) -> str:
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


def _through(middle: pa.DataType, kind: pa.DataType, wire: WireSettings) -> Converter:
    form = _form(middle, "", {}, wire)
    return Converter(
        form.type,
        form.name,
        form.parameters,
        lambda column: form.write(column.cast(middle)),
        lambda column: form.read(column).cast(kind),
    )


def _list_form(
    kind: pa.DataType, semantic: str, parameters: Mapping[str, str], wire: WireSettings
) -> Converter:
    is_vector = semantic in VECTORS
    item = _form(kind.value_type, "" if is_vector else semantic, parameters, wire)
    wire_type, name = pa.list_(item.type), semantic if is_vector else ""
    if item.to_wire is None:
        return Converter(wire_type, name, parts=(item,))
    return Converter(
        wire_type,
        name,
        to_wire=lambda column: list_like(column, item.write(column.flatten())),
        from_wire=lambda column: list_like(column, item.read(column.flatten())),
        parts=(item,),
    )


def _struct_form(
    kind: pa.DataType, semantic: str, parameters: Mapping[str, str], wire: WireSettings
) -> Converter:
    names = [member.name for member in kind]
    doc, required = SHAPES.get(semantic, ("", frozenset()))
    if semantic in SHAPES:  # bytes inside them always have one form
        wire = wire.model_copy(update={"binary": "bytes"})
    parts = tuple(_form(member.type, "", {}, wire) for member in kind)
    wire_type = pa.struct(
        [pa.field(name, part.type) for name, part in zip(names, parts, strict=True)]
    )
    if required:
        return Converter(
            wire_type,
            semantic,
            parameters,
            lambda column: with_required(column, required),
            parts=parts,
            required=required,
            doc=doc,
        )
    if all(part.to_wire is None for part in parts):
        return Converter(wire_type, semantic, parameters, parts=parts)
    return Converter(
        wire_type,
        semantic,
        parameters,
        lambda column: _with_members(column, [part.write for part in parts]),
        lambda column: _with_members(column, [part.read for part in parts]),
        parts,
    )


def with_required(column: pa.StructArray, required: frozenset[str]) -> pa.StructArray:
    """Returns the type with those fields declared as never null, which they are not if the struct
    is present."""
    fields = [member.with_nullable(member.name not in required) for member in column.type]
    members = [
        values if field.nullable else _fill(values)
        for field, values in zip(fields, column.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(members, fields=fields, mask=column.is_null())


def _fill(values: pa.Array) -> pa.Array:
    return values.fill_null(b"" if pa.types.is_binary(values.type) else 0)


def _with_members(column: pa.Array, conversions: list[Conversion]) -> pa.Array:
    members = [
        convert(member) for convert, member in zip(conversions, column.flatten(), strict=True)
    ]
    fields = [
        pa.field(old.name, member.type) for old, member in zip(column.type, members, strict=True)
    ]
    return pa.StructArray.from_arrays(members, fields=fields, mask=column.is_null())


def _binary_form(semantic: str, parameters: Mapping[str, str], wire: WireSettings) -> Converter:
    if wire.binary == "bytes" or semantic == BITS:
        return Converter(pa.binary(), semantic, parameters)
    if wire.binary == "hex":
        return Converter(pa.string(), semantic, parameters, bytes.to_hex, bytes.from_hex)
    is_safe = wire.binary == "base64-url-safe"
    alphabet = bytes.URL_SAFE if is_safe else bytes.STANDARD
    return Converter(
        pa.string(),
        semantic,
        parameters,
        lambda column: bytes.to_base64(column, alphabet=alphabet),
        lambda column: bytes.from_base64(column, alphabet=alphabet),
    )


VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"


def decimal_form(kind: pa.DataType, parameters: Mapping[str, str], wire: WireSettings) -> Converter:
    """Returns the converter. `parameters` are those of the schema if the type alone would give
    others."""
    match wire.decimal:
        case "string":
            return Converter(
                pa.string(),
                to_wire=number.decimal_to_text,
                from_wire=lambda column: number.text_to_decimal(column, kind),
                direct=ValueEncoding.DECIMAL,
            )
        case "double":
            return Converter(
                pa.float64(),
                # Converted through text: Arrow's own cast is sometimes off by one bit.
                to_wire=lambda column: number.decimal_to_text(column).cast(pa.float64()),
                from_wire=lambda column: column.cast(kind),
            )
        case "precise":
            declared = {
                "scale": str(kind.scale),
                "connect.decimal.precision": str(kind.precision),
            }
            return Converter(
                pa.binary(),
                DECIMAL,
                parameters or declared,
                number.decimal_to_bytes,
                lambda column: number.bytes_to_decimal(column, kind),
            )


def long_decimal_form(
    semantic: str, parameters: Mapping[str, str], wire: WireSettings
) -> Converter:
    """Returns the converter of numbers that no Arrow type holds. Internally they are text in every
    mode."""
    match wire.decimal:
        case "string":
            return Converter(
                pa.string(), to_wire=number.to_java_words, from_wire=number.from_java_words
            )
        case "double":
            return Converter(
                pa.float64(),
                to_wire=lambda column: column.cast(pa.float64()),
                from_wire=number.double_to_text,
            )
        case "precise" if semantic == VARIABLE_SCALE:
            return Converter(
                number.VARIABLE_SCALE,
                semantic,
                {},
                number.text_to_variable_scale,
                number.variable_scale_to_text,
                (Converter(pa.int32()), Converter(pa.binary())),
                frozenset(("scale", "value")),
                "Variable scaled decimal",
            )
        case "precise":
            scale = int(parameters.get("scale", "0"))
            return Converter(
                pa.binary(),
                semantic,
                parameters,
                lambda column: number.text_to_scaled(column, scale=scale),
                lambda column: number.scaled_to_text(column, scale=scale),
            )
