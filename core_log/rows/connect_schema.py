"""Kafka Connect's schemas of columns, keys, rows and events, as its JsonConverter writes them."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.core_log.model.changes import ColumnOrValue
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.row_writer import ValueEncoding

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
DECIMAL = "org.apache.kafka.connect.data.Decimal"
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
Conversion = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class Converter:
    """The wire form of one column. A conversion may raise `ValueError`; `None` means no conversion.

    `type` consists of booleans, signed integers, floats, strings, bytes, lists, structs and maps of
    strings.
    """

    type: pa.DataType
    name: str = ""
    """Name of the meaning in Connect and Debezium, such as `io.debezium.time.Date`."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    to_wire: Conversion | None = None
    from_wire: Conversion | None = None
    parts: tuple["Converter", ...] = ()
    """Converters of a list's items, or of a struct's fields."""
    required: frozenset[str] = frozenset()
    """Fields of a struct that are never null; the result of `to_wire` declares that, too."""
    doc: str = ""
    """Documentation text in Debezium's schema."""
    direct: ValueEncoding | None = None
    """JSON encoding that takes the column without `to_wire`."""

    def write(self, column: pa.Array) -> pa.Array:
        return column if self.to_wire is None else self.to_wire(column)

    def read(self, column: pa.Array) -> pa.Array:
        return column if self.from_wire is None else self.from_wire(column)

    def connect_schema(self, *, is_optional: bool) -> dict[str, Any]:
        """Returns the schema with its fields in the order of Kafka Connect's JsonConverter."""
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
        elif pa.types.is_map(self.type):
            key, value = ({"type": "string", "optional": each} for each in (False, True))
            schema = {"type": "map", "keys": key, "values": value}
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
