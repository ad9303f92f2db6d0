"""Avro schemas as Confluent's converter makes them of Kafka Connect's."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

AvroSchema = Any
"""A name, a list of branches, or an object: what `json` makes of an Avro schema."""

KnownRecords = dict[str, Any]
"""The fields of each record, by its full name."""

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
"""Avro has no such numbers: a property says what they were."""
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
    """`known` are the records defined so far, which are only named from then on."""
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
    """As Debezium's adjustment mode `avro` replaces what Avro does not allow."""
    replaced = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return replaced if re.match(r"[A-Za-z_]", replaced) else f"_{replaced}"


def legal_names(names: Sequence[str]) -> list[str]:
    """Names that would fall together get a number."""
    found: list[str] = []
    for name in names:
        legal, number = legal_name(name), 2
        while legal in found:
            legal, number = f"{legal_name(name)}_{number}", number + 1
        found.append(legal)
    return found
