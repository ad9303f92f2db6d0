"""Kafka Connect's schemas of keys, rows and events, as its JsonConverter writes them."""

import json
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from headwater.core_log.model.changes import ColumnOrValue
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.converters.converter import Converter

SNAPSHOT_STEPS = (
    "true", "first", "first_in_data_collection", "last_in_data_collection", "last", "false",
    "incremental",
)  # fmt: skip
OPTIONAL_IN_SOURCE = {
    "sequence", "txId", "lsn", "xmin", "origin", "origin_lsn", "ts_us", "ts_ns", "gtid", "thread",
    "query",
}  # fmt: skip
NUMBERS_IN_SOURCE = {"txId", "lsn", "xmin", "origin_lsn", "thread", "server_id"}
"""Fields that are numbers even if all values of a batch are null."""
NUMBER, SMALL_NUMBER, TEXT, FLAG = "int64", "int32", "string", "boolean"
SMALL_IN_SOURCE = {"row"}


def row_fields(schema: TableSchema, forms: Mapping[str, Converter]) -> list[dict[str, Any]]:
    """Returns the row's fields. Only the key is never null: a deleted row may have nothing else."""
    return [
        forms[name].connect_schema(is_optional=name not in schema.key) | {"field": name}
        for name in schema.names
    ]


def key_schema(
    schema: TableSchema, forms: Mapping[str, Converter], *, topic: str
) -> dict[str, Any]:
    fields = [
        forms[name].connect_schema(is_optional=False) | {"field": name} for name in schema.key
    ]
    return struct(fields, is_optional=False, name=f"{topic}.Key")


def envelope_schema(
    schema: TableSchema,
    forms: Mapping[str, Converter],
    source: Mapping[str, ColumnOrValue],
    *,
    topic: str,
) -> dict[str, Any]:
    row = struct(row_fields(schema, forms), is_optional=True, name=f"{topic}.Value")
    fields = [
        row | {"field": "before"},
        row | {"field": "after"},
        source_schema(source) | {"field": "source"},
        transaction_schema() | {"field": "transaction"},
        plain(TEXT, "op", is_optional=False),
        *(plain(NUMBER, name, is_optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
    ]
    return struct(fields, is_optional=False, name=f"{topic}.Envelope", version=2)


def source_schema(source: Mapping[str, ColumnOrValue]) -> dict[str, Any]:
    connector = source.get("connector")
    owner = f".{connector}" if isinstance(connector, str) else ""
    is_binlog = "gtid" in source
    fields = [_source_field(name, value, is_binlog=is_binlog) for name, value in source.items()]
    return struct(fields, is_optional=False, name=f"io.debezium.connector{owner}.Source", version=1)


def _source_field(name: str, value: ColumnOrValue, *, is_binlog: bool) -> dict[str, Any]:
    """`is_binlog`: MySQL's and MariaDB's events may belong to no table."""
    if name == "snapshot":
        return {
            "type": TEXT,
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": ",".join(SNAPSHOT_STEPS)},
            "default": "false",
            "field": name,
        }
    is_optional = value is None or name in OPTIONAL_IN_SOURCE or (name == "table" and is_binlog)
    kind = SMALL_NUMBER if name in SMALL_IN_SOURCE else value_type(name, value)
    return plain(kind, name, is_optional=is_optional)


def source_shape(source: Mapping[str, ColumnOrValue]) -> Hashable:
    """Returns the parts of a `source` block that its schema depends on."""
    fields = tuple((name, value_type(name, value), value is None) for name, value in source.items())
    connector = source.get("connector")
    return fields, connector if isinstance(connector, str) else ""


def value_type(name: str, value: ColumnOrValue) -> str:
    """Returns Connect's type of a field of the `source` block."""
    kind = value.type if isinstance(value, pa.Array) else None
    if isinstance(value, bool) or kind == pa.bool_():
        return FLAG
    is_number = kind is not None and pa.types.is_integer(kind)
    if isinstance(value, int) or is_number or (value is None and name in NUMBERS_IN_SOURCE):
        return NUMBER
    return TEXT


def transaction_schema() -> dict[str, Any]:
    fields = [
        plain(TEXT, "id", is_optional=False),
        plain(NUMBER, "total_order", is_optional=False),
        plain(NUMBER, "data_collection_order", is_optional=False),
    ]
    return struct(fields, is_optional=True, name="event.block", version=1)


def plain(kind: str, name: str, *, is_optional: bool) -> dict[str, Any]:
    return {"type": kind, "optional": is_optional, "field": name}


def struct(
    fields: Iterable[dict[str, Any]], *, is_optional: bool, name: str, version: int | None = None
) -> dict[str, Any]:
    schema = {"type": "struct", "fields": list(fields), "optional": is_optional, "name": name}
    return schema if version is None else schema | {"version": version}


def text_of(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
