"""A table's schema and wire settings as JSON, the value of a record of `__headwater_schemas`, with
column types as text: `decimal(10,2)`, `timestamptz(us)`, `list<struct<a:int32>>`."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import Column, DroppedColumn, TableId, TableSchema
from headwater.core_log.rows.connect_schema import DECIMAL
from headwater.core_log.rows.settings import WireSettings

FORMAT_VERSION = 1
DECLARED = "headwater.declared"
"""Parameter of a column that is text for a while: its type in the log."""
PLAIN_TYPES = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
} | {
    text: kind
    for unit in ("s", "ms", "us", "ns")
    for text, kind in (
        (f"time({unit})", pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)),
        (f"timestamp({unit})", pa.timestamp(unit)),
        (f"timestamptz({unit})", pa.timestamp(unit, "UTC")),
    )
}
PLAIN_TEXTS = {kind: text for text, kind in PLAIN_TYPES.items()}
TOKEN = re.compile(
    r"\s*(?P<kind>(?:decimal|time|timestamp|timestamptz)\([^()]*\)|[a-z0-9]+(?=[<>,\s]|$))"
)
FIELD_NAME = re.compile(r'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<bare>\w+))\s*:')
DECIMAL_TYPE = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
DECIMAL128_DIGITS_MAX, DECIMAL_DIGITS_MAX = 38, 76
DEPTH_MAX = 64


def schema_to_json(schema: TableSchema, wire: WireSettings) -> dict[str, Any]:
    """Returns the complete JSON: defaults are written too, because defaults may change and records
    stay."""
    written = {
        "version": FORMAT_VERSION,
        "table": {"namespace": schema.table.namespace, "name": schema.table.name},
        "columns": [_column_to_json(column) for column in schema.columns],
        "key": list(schema.key),
        "wire": wire.model_dump(mode="json"),
    }
    if schema.id:
        written["id"] = schema.id
    if schema.dropped:
        written["dropped"] = [_dropped_to_json(column) for column in schema.dropped]
    return written


def schema_from_json(document: Mapping[str, Any]) -> tuple[TableSchema, WireSettings]:
    if document.get("version") != FORMAT_VERSION:
        raise DecodeError(
            "the schema was written by another version of headwater",
            version=document.get("version"),
            known=FORMAT_VERSION,
            hint="read it with the version that wrote it, or a newer one",
        )
    try:
        table = TableId(document["table"]["namespace"], document["table"]["name"])
        columns = tuple(_column_from_json(column) for column in document["columns"])
        dropped = tuple(_dropped_from_json(column) for column in document.get("dropped", ()))
        schema = TableSchema(table, columns, tuple(document["key"]), dropped, document.get("id", 0))
        wire = WireSettings.model_validate(document["wire"])
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise DecodeError("a stored schema is invalid") from error
    return schema, wire


def _column_to_json(column: Column) -> dict[str, Any]:
    written: dict[str, Any] = {
        "name": column.name,
        "type": type_text(column.type),
        "nullable": column.is_nullable,
    }
    if column.semantic:
        written["semantic"] = column.semantic
    if column.parameters:
        written["parameters"] = dict(column.parameters)
    if column.mask:
        written["mask"] = column.mask
    if column.rule_name:
        written["rule_name"] = column.rule_name
    if column.id:
        written["id"] = column.id
    if column.missing is not None:
        written["missing"] = column.missing
    return written


def _column_from_json(document: Mapping[str, Any]) -> Column:
    return Column(
        document["name"],
        parse_type(document["type"]),
        is_nullable=document["nullable"],
        semantic=document.get("semantic", ""),
        parameters=dict(document.get("parameters", {})),
        mask=document.get("mask", ""),
        rule_name=document.get("rule_name", ""),
        id=document.get("id", 0),
        missing=document.get("missing"),
    )


def _dropped_to_json(column: DroppedColumn) -> str | dict[str, Any]:
    """Writes only the name of a column without an id, as it was done before there were ids."""
    if not (column.id or column.rule_name):
        return column.name
    return column._asdict()


def _dropped_from_json(document: str | Mapping[str, Any]) -> DroppedColumn:
    return DroppedColumn(document) if isinstance(document, str) else DroppedColumn(**document)


def type_text(kind: pa.DataType) -> str:
    """Returns the text that `parse_type` reads; field names that are not plain words are quoted as
    JSON."""
    if kind in PLAIN_TEXTS:
        return PLAIN_TEXTS[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"list<{type_text(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = (f"{field_name_text(field.name)}:{type_text(field.type)}" for field in kind)
        return f"struct<{','.join(fields)}>"
    raise DecodeError("a column of this type is not supported by the log", type=str(kind))


def field_name_text(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else json.dumps(name, ensure_ascii=False)


def parse_type(text: str) -> pa.DataType:
    """Returns the type; raises `DecodeError` for text that `type_text` would not write."""
    kind, end = _parse(text, 0, depth=0)
    if text[end:].strip():
        raise _unreadable(text)
    return kind


def _parse(text: str, start: int, *, depth: int) -> tuple[pa.DataType, int]:
    token = TOKEN.match(text, start)
    if token is None or depth > DEPTH_MAX:
        raise _unreadable(text)
    word, end = re.sub(r"\s", "", token["kind"]), token.end()
    if word == "list":
        item, end = _parse(text, _after(text, end, "<"), depth=depth + 1)
        return pa.list_(item), _after(text, end, ">")
    if word == "struct":
        return _parse_struct(text, _after(text, end, "<"), depth=depth)
    if digits := DECIMAL_TYPE.fullmatch(word):
        return _decimal(int(digits[1]), scale=int(digits[2]), text=text), end
    if word not in PLAIN_TYPES:
        raise _unreadable(text)
    return PLAIN_TYPES[word], end


def _parse_struct(text: str, start: int, *, depth: int) -> tuple[pa.DataType, int]:
    fields: list[pa.Field] = []
    end = start
    while text[end : end + 1] != ">" or fields:
        name = FIELD_NAME.match(text, end)
        if name is None:
            raise _unreadable(text)
        kind, end = _parse(text, name.end(), depth=depth + 1)
        fields.append(pa.field(_field_name(name, text), kind))
        if text[end : end + 1] != ",":
            break
        end += 1
    return pa.struct(fields), _after(text, end, ">")


def _field_name(name: re.Match[str], text: str) -> str:
    if name["bare"] is not None:
        return name["bare"]
    try:
        return str(json.loads(name["quoted"]))
    except ValueError as error:
        raise _unreadable(text) from error


def _decimal(precision: int, *, scale: int, text: str) -> pa.DataType:
    if not 1 <= precision <= DECIMAL_DIGITS_MAX or abs(scale) > DECIMAL_DIGITS_MAX:
        raise _unreadable(text)
    return decimal_type(precision, scale)


def decimal_type(precision: int, scale: int) -> pa.DataType:
    make = pa.decimal128 if precision <= DECIMAL128_DIGITS_MAX else pa.decimal256
    return make(precision, scale)


def _after(text: str, start: int, mark: str) -> int:
    found = re.compile(rf"\s*{mark}").match(text, start)
    if found is None:
        raise _unreadable(text)
    return found.end()


def _unreadable(text: str) -> DecodeError:
    return DecodeError("the text is not a column type", type=text)


@cache
def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Returns the numpy type of numbers and booleans. Arrow's `to_pandas_dtype` needs pandas, which
    is not installed."""
    dtype: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return dtype


def decimals_as_text(column: Column) -> Column:
    """Returns a column of decimals, or of lists of them, as text, because the wire has a word for a
    NaN. In the modes `string` and `double` other records look like those of the column itself."""
    declared = {DECLARED: type_text(column.type)}
    return replace(
        column,
        type=_text_type(column.type),
        semantic=DECIMAL,
        parameters={**column.parameters, **declared},
    )


def _text_type(kind: pa.DataType) -> pa.DataType:
    return pa.list_(_text_type(kind.value_type)) if pa.types.is_list(kind) else pa.string()


def declare_nan_columns(schema: TableSchema) -> TableSchema:
    """Returns the schema that such records are written under. The table's schema stays the same,
    and a reader with a decimal column refuses the record instead of reading a NaN as a number."""
    if not any(DECLARED in column.parameters for column in schema.columns):
        return schema
    return replace(schema, columns=tuple(map(_declare, schema.columns)))


def _declare(column: Column) -> Column:
    if DECLARED not in column.parameters:
        return column
    others = {name: text for name, text in column.parameters.items() if name != DECLARED}
    kind = parse_type(column.parameters[DECLARED])
    return replace(column, type=kind, semantic="", parameters=others)
