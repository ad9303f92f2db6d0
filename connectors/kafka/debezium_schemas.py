"""Finds the table's schema in Debezium's events: in their own schema, or by inference from rows."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from headwater.connectors.kafka.json_rows import as_line, column_types
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import Column, TableId, TableSchema

OPENING = '{"schema":'
PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:')
ROWS = ("after", "before")


class FramedSchema(NamedTuple):
    """The common prefix of all records of one schema up to their payload; a brace follows it."""

    prefix: bytes
    schema: TableSchema


def has_schema(value: bytes) -> bool:
    return value.startswith(OPENING.encode())


def framed_schema(value: bytes, key: tuple[str, ...], table: TableId) -> FramedSchema:
    try:
        text = value.decode()
        document, end = json.JSONDecoder().raw_decode(text, len(OPENING))
        payload = PAYLOAD.match(text, end)
        if payload is None:
            raise ValueError("the payload does not follow the schema")
        row = next(each for each in document["fields"] if each.get("field") == "after")
        columns = columns_of(row["fields"])
    except (ValueError, KeyError, TypeError, StopIteration, UnicodeDecodeError):
        raise DecodeError("a value's schema is not one of Debezium's envelope") from None
    known = {column.name for column in columns}
    schema = TableSchema(table, columns, tuple(name for name in key if name in known))
    return FramedSchema(text[: payload.end()].encode(), schema)


def inferred_schema(
    values: Iterable[bytes], key: tuple[str, ...], table: TableId
) -> TableSchema | None:
    """Returns the common schema of these events' rows; None if there is no row among them."""
    rows = [line for value in values for row in _rows_of(value) if (line := as_line(row))]
    if not rows:
        return None
    kinds = column_types(rows)
    columns = tuple(Column(name, kind, is_nullable=name not in key) for name, kind in kinds.items())
    return TableSchema(table, columns, tuple(name for name in key if name in kinds))


def _rows_of(value: bytes) -> list[Mapping[str, Any]]:
    try:
        event = orjson.loads(value)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(event, dict):
        return []
    return [event[name] for name in ROWS if isinstance(event.get(name), dict)]


def key_columns(keys: pa.BinaryArray) -> tuple[str, ...]:
    """Returns the fields of the first key, with or without its own schema."""
    for key in keys.drop_null()[:1].to_pylist():
        try:
            document = orjson.loads(key)
        except orjson.JSONDecodeError:
            return ()
        if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
            document = document["payload"]
        return tuple(document) if isinstance(document, dict) else ()
    return ()


DECIMAL = "org.apache.kafka.connect.data.Decimal"
PRECISION = "connect.decimal.precision"
PRECISION_MAX = 38
PLAIN = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
MEANINGS: Mapping[str, Callable[[Mapping[str, str]], pa.DataType]] = {
    DECIMAL: lambda given: pa.decimal128(
        int(given.get(PRECISION, PRECISION_MAX)), int(given["scale"])
    ),
    "io.debezium.time.Date": lambda _: pa.date32(),
    "io.debezium.time.Time": lambda _: pa.time32("ms"),
    "io.debezium.time.MicroTime": lambda _: pa.time64("us"),
    "io.debezium.time.NanoTime": lambda _: pa.time64("ns"),
    "io.debezium.time.Timestamp": lambda _: pa.timestamp("ms"),
    "io.debezium.time.MicroTimestamp": lambda _: pa.timestamp("us"),
    "io.debezium.time.NanoTimestamp": lambda _: pa.timestamp("ns"),
    "io.debezium.time.ZonedTimestamp": lambda _: pa.timestamp("us", "UTC"),
}
"""Names whose meaning one of our types has; others stay with their column as its semantic."""


def columns_of(fields: list[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Returns the columns; raises `DecodeError` for types that no column can have."""
    return tuple(_column(field) for field in fields)


def _column(field: Mapping[str, Any]) -> Column:
    name, meaning = str(field["field"]), str(field.get("name") or "")
    parameters = {str(key): str(value) for key, value in (field.get("parameters") or {}).items()}
    kind = _type(field)
    is_carried = meaning in MEANINGS
    return Column(
        name,
        kind,
        is_nullable=bool(field.get("optional", False)),
        semantic="" if is_carried else meaning,
        parameters={} if is_carried else parameters,
    )


def _type(schema: Mapping[str, Any]) -> pa.DataType:
    meaning, kind = str(schema.get("name") or ""), schema.get("type")
    if meaning in MEANINGS:
        try:
            return MEANINGS[meaning](schema.get("parameters") or {})
        except (KeyError, ValueError) as error:
            raise DecodeError("a schema lacks parameters of its name", name=meaning) from error
    if kind == "array":
        return pa.list_(_type(schema["items"]))
    if kind == "struct":
        return pa.struct([pa.field(each["field"], _type(each)) for each in schema["fields"]])
    if kind not in PLAIN:
        raise DecodeError("a column of this type cannot be read from Connect's schema", type=kind)
    return PLAIN[kind]
