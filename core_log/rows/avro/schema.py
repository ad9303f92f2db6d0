"""Avro schemas as Confluent's converter derives them from Kafka Connect's."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.avro.writer import AvroPart, value_parts

AvroSchema = Any
"""A name, a list of branches, or an object: an Avro schema parsed by `json`."""

KnownRecords = dict[str, Any]
"""The fields of each record by its full name."""

PRIMITIVES = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
NARROW = {"int8", "int16"}
"""Integer types that Avro lacks: a property names them."""
LOGICAL_TYPES = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
DECIMAL = "org.apache.kafka.connect.data.Decimal"
DEFAULT_NAMESPACE, DEFAULT_NAME = "io.confluent.connect.avro", "ConnectDefault"
DEFAULT_PRECISION = 64


def avro_schema(connect: Mapping[str, Any]) -> AvroSchema:
    return _schema(connect, {})


def _schema(connect: Mapping[str, Any], known: KnownRecords) -> AvroSchema:
    """Returns the schema. `known` are the records that are already defined; they are only named
    again."""
    schema = _require(connect, known)
    if not connect["optional"]:
        return schema
    return [schema, "null"] if "default" in connect else ["null", schema]


def _require(connect: Mapping[str, Any], known: KnownRecords) -> AvroSchema:
    if connect["type"] == "struct":
        return _record(connect, known)
    if connect["type"] == "array":
        schema = {"type": "array", "items": _schema(connect["items"], known)}
    elif connect["type"] == "map":
        schema = {"type": "map", "values": _schema(connect["values"], known)}
    else:
        schema = {"type": PRIMITIVES[connect["type"]]}
    schema |= _decimal(connect) | _properties(connect)
    if connect["type"] in NARROW:
        schema["connect.type"] = connect["type"]
    if connect.get("name") in LOGICAL_TYPES:
        schema["logicalType"] = LOGICAL_TYPES[connect["name"]]
    return schema if len(schema) > 1 else schema["type"]


def _decimal(connect: Mapping[str, Any]) -> dict[str, Any]:
    if connect.get("name") != DECIMAL:
        return {}
    scale = int(connect["parameters"]["scale"])
    precision = int(connect["parameters"].get("connect.decimal.precision", DEFAULT_PRECISION))
    return {"scale": scale, "precision": precision, "logicalType": "decimal"}


def _properties(connect: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        f"connect.{name}": connect[name]
        for name in ("version", "parameters", "default", "name")
        if name in connect
    }
    if "name" in connect:
        found["connect.name"] = legal_full_name(connect["name"])
    return found


def _record(connect: Mapping[str, Any], known: KnownRecords) -> AvroSchema:
    plain = legal_full_name(connect.get("name", f"{DEFAULT_NAMESPACE}.{DEFAULT_NAME}"))
    full, number = plain, 2
    while full in known and known[full] != connect["fields"]:
        full, number = f"{plain}{number}", number + 1  # another record of the same name
    if full in known:
        return full
    known[full] = connect["fields"]
    namespace, _, name = full.rpartition(".")
    names = legal_names([each["field"] for each in connect["fields"]])
    fields = [
        _field(each, known, name=legal)
        for each, legal in zip(connect["fields"], names, strict=True)
    ]
    record: dict[str, Any] = {"type": "record", "name": name}
    if namespace:
        record["namespace"] = namespace
    return record | {"fields": fields} | _properties(connect)


def _field(connect: Mapping[str, Any], known: KnownRecords, *, name: str) -> dict[str, Any]:
    field = {"name": name, "type": _schema(connect, known)}
    if "default" in connect or connect["optional"]:
        field["default"] = connect.get("default")
    return field


def legal_full_name(name: str) -> str:
    return ".".join(legal_name(part) for part in name.split("."))


def legal_name(name: str) -> str:
    """Returns the name with Avro's illegal characters replaced, as Debezium's adjustment mode
    `avro` does it."""
    replaced = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return replaced if re.match(r"[A-Za-z_]", replaced) else f"_{replaced}"


def legal_names(names: Sequence[str]) -> list[str]:
    """Returns legal names; names that would become equal get a number."""
    found: list[str] = []
    for name in names:
        legal, number = legal_name(name), 2
        while legal in found:
            legal, number = f"{legal_name(name)}_{number}", number + 1
        found.append(legal)
    return found


def encoded_parts(schema: TableSchema, columns: Mapping[str, pa.Array]) -> list[AvroPart]:
    return [
        part
        for name, column in columns.items()
        for part in value_parts(column, is_optional=name not in schema.key)
    ]


def row_columns(
    rows: pa.StructArray, names: Sequence[str], *, may_have: Sequence[str] = ()
) -> list[pa.Array]:
    """Returns the columns by their legal names; raises if the writer had other columns."""
    legal = legal_names(names)
    found = {field.name: column for field, column in zip(rows.type, rows.flatten(), strict=True)}
    missing, extra = set(legal) - found.keys(), found.keys() - {*legal, *may_have}
    if missing or extra:
        raise DecodeError(
            "the schema of these records has other columns than their table",
            missing=sorted(missing),
            extra=sorted(extra),
        )
    return [found[name] for name in legal]


def fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns Avro's column in its wire type; raises `ValueError` if it has another kind."""
    if pa.types.is_null(column.type):
        return column.cast(kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        members = [
            fit(part, member.type) for part, member in zip(column.flatten(), kind, strict=True)
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        items = fit(column.flatten(), kind.value_type)
        counts = pc.list_value_length(column).fill_null(0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(offsets, items, mask=mask)
    if column.type == kind:
        return column
    if pa.types.is_integer(kind) and pa.types.is_integer(column.type):
        return column.cast(kind)
    raise ValueError("the column has another type")


def zeros_where_null(column: pa.Array) -> pa.Array:
    """Returns the column with zeros for nulls: a truncate has no row, and key columns have no
    null."""
    if not column.null_count:
        return column
    kind = column.type
    if kind in (pa.string(), pa.binary()):
        return column.fill_null("" if kind == pa.string() else b"")
    return pc.if_else(column.is_valid(), column, pa.scalar(0).cast(kind))
