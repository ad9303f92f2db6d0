"""The schema that Kafka Connect puts beside a value, read as a table's columns."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import Column

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
"""Names whose meaning a type of ours carries; others stay with their column as its semantic."""


def columns_of(fields: list[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Raises `DecodeError` for what no column can be."""
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
            raise DecodeError("a schema lacks what its name asks for", name=meaning) from error
    if kind == "array":
        return pa.list_(_type(schema["items"]))
    if kind == "struct":
        return pa.struct([pa.field(each["field"], _type(each)) for each in schema["fields"]])
    if kind not in PLAIN:
        raise DecodeError("a column of this type cannot be read from Connect's schema", type=kind)
    return PLAIN[kind]
