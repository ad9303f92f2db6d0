"""Delta's log in JSON: the actions of one commit, in the form of its protocol."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from headwater.core_log.foundation.errors import SchemaRefused
from headwater.core_log.model.log import TopicPartition
from headwater.sinks.sink import AppliedOffsets, ConsistentCut
from headwater.sinks.spark.key_ranges import (
    DAY_US,
    FIRST_DAY,
    LAST_DAY,
    Bound,
    DataFile,
    decimal_of,
)

if TYPE_CHECKING:
    from deltalake.table import ProtocolVersions

ENGINE = "headwater"
PLAIN = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
ARROW = {text: kind for kind, text in PLAIN.items()}
NTZ = "timestampNtz"


LEGACY = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
    "identityColumns": 6,
}
"""Features, with the oldest writer version that stands for them."""
ADDITIONS = {"appendOnly": "delta.appendOnly", "changeDataFeed": "delta.enableChangeDataFeed"}
"""Properties that allow, or ask nothing of, commits that only add rows."""
PROPERTIES = ADDITIONS | {"inCommitTimestamp": "delta.enableInCommitTimestamps"}
CONSTRAINT, MAPPING = "delta.constraints.", "delta.columnMapping.mode"
FIELD_MARKS = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.typeChanges": "typeWidening",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}
HARMLESS = {
    *LEGACY,
    *PROPERTIES,
    *FIELD_MARKS.values(),
    NTZ,
    "deletionVectors",
    "domainMetadata",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""Features that ask nothing of a writer as long as nothing in the table uses them."""


def protocol(schema: pa.Schema, held: "ProtocolVersions | None" = None) -> dict[str, Any]:
    """Returns the lowest protocol that readers and writers must support. A table that is there
    keeps what it has: other programs count on it."""
    reader, writer = (1, 2) if held is None else (held.min_reader_version, held.min_writer_version)
    readers, writers = (
        set((held and held.reader_features) or ()),
        set((held and held.writer_features) or ()),
    )
    if NTZ not in readers and any(_has_ntz(field.type) for field in schema):
        if held is not None and writer < 7:
            writers = {name for name, since in LEGACY.items() if since <= writer}
            readers = {"columnMapping"} if reader == 2 else set()
        reader, writer = 3, 7
        readers.add(NTZ)
        writers.add(NTZ)
    found: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader >= 3:
        found["readerFeatures"] = sorted(readers)
    if writer >= 7:
        found["writerFeatures"] = sorted(writers)
    return {"protocol": found}


def unwritable_feature(
    held: "ProtocolVersions", schema: str, properties: Mapping[str, str], *, adds_only: bool
) -> str | None:
    """Returns a feature of the table that asks more of a writer than we do.

    `schema`: in Delta's JSON. `adds_only`: whether no commit takes rows away.
    """
    unknown = set(held.writer_features or ()) - HARMLESS
    if unknown:
        return min(unknown)
    if properties.get(MAPPING, "none") != "none":
        return "columnMapping"
    if any(name.startswith(CONSTRAINT) for name in properties):
        return "checkConstraints"
    for feature, name in PROPERTIES.items():
        if properties.get(name) == "true" and not (adds_only and feature in ADDITIONS):
            return feature
    marks: set[str] = set()

    def note(value: dict[str, Any]) -> dict[str, Any]:
        marks.update(value.get("metadata") or ())
        return value

    json.loads(schema, object_hook=note)
    return next((FIELD_MARKS[mark] for mark in sorted(marks & FIELD_MARKS.keys())), None)


def meta_data(
    id: str,
    schema: pa.Schema,
    *,
    partition_by: Sequence[str],
    configuration: Mapping[str, str],
    created_ms: int,
) -> dict[str, Any]:
    return {
        "metaData": {
            "id": id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_struct(schema)),
            "partitionColumns": list(partition_by),
            "configuration": dict(configuration),
            "createdTime": created_ms,
        }
    }


def add(
    file: DataFile,
    *,
    key: pa.Field | None,
    partition_by: Sequence[str],
    now_ms: int,
    is_new: bool,
) -> dict[str, Any]:
    return {
        "add": {
            "path": file.path,
            "partitionValues": dict(zip(partition_by, file.partition, strict=True)),
            "size": file.size,
            "modificationTime": now_ms,
            "dataChange": is_new,
            "stats": _stats(file, key),
        }
    }


def _stats(file: DataFile, key: pa.Field | None) -> str:
    """Returns a file's statistics, which readers use without opening the file.

    They are written by hand: Delta wants decimals as JSON numbers, and Python's writer has no such
    numbers.
    """
    found = [f'"numRecords":{file.rows}']
    if key is not None and file.low is not None and file.high is not None:
        low, high = _describe(file.low, key.type), _describe(file.high, key.type)
        name = json.dumps(key.name, ensure_ascii=False)
        if low is not None and high is not None:
            found += [f'"minValues":{{{name}:{low}}}', f'"maxValues":{{{name}:{high}}}']
            found += [f'"nullCount":{{{name}:0}}']
    return f"{{{','.join(found)}}}"


def _describe(bound: Bound, kind: pa.DataType) -> str | None:
    """Returns the value as Delta writes it in JSON; None if Delta has no form for the type."""
    if isinstance(bound, str):
        return json.dumps(bound, ensure_ascii=False)
    if pa.types.is_decimal(kind):
        return f"{decimal_of(bound, kind):f}"
    if not pa.types.is_date(kind) and not pa.types.is_timestamp(kind):
        return str(bound)
    moment = bound * DAY_US if pa.types.is_date(kind) else bound
    if not FIRST_DAY * DAY_US <= moment < LAST_DAY * DAY_US:
        return None
    text = str(pa.scalar(moment, pa.timestamp("us")).as_py().isoformat(timespec="microseconds"))
    if pa.types.is_date(kind):
        return f'"{text[:10]}"'
    return f'"{text}"' if kind.tz is None else f'"{text}Z"'


def remove(
    file: DataFile, *, partition_by: Sequence[str], now_ms: int, is_gone: bool
) -> dict[str, Any]:
    return {
        "remove": {
            "path": file.path,
            "deletionTimestamp": now_ms,
            "dataChange": is_gone,
            "extendedFileMetadata": True,
            "partitionValues": dict(zip(partition_by, file.partition, strict=True)),
            "size": file.size,
        }
    }


def txn(name: str, version: int, *, now_ms: int) -> dict[str, Any]:
    return {"txn": {"appId": name, "version": version, "lastUpdated": now_ms}}


def commit_info(
    *,
    operation: str,
    cut: ConsistentCut | None,
    offsets: AppliedOffsets,
    now_ms: int,
    read_version: int | None,
) -> dict[str, Any]:
    held: list[list[object]] = [
        [part.topic, part.partition, applied.next_offset]
        for part, applied in sorted(offsets.items())
    ]
    found: dict[str, Any] = {
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": ENGINE,
        "txnId": str(uuid4()),
        ENGINE: {
            "stands": held,
            "cut": None if cut is None else cut.offset,
            "committed_ms": None if cut is None else cut.committed_ms,
            "positions": {} if cut is None else dict(cut.positions),
        },
    }
    if read_version is not None:
        found["readVersion"] = read_version
    return {"commitInfo": found}


def recorded_offsets(info: Mapping[str, Any]) -> dict[TopicPartition, int]:
    engine = info.get(ENGINE) or {}
    return {TopicPartition(topic, number): at for topic, number, at in engine.get("stands", ())}


def commit_info_in(content: bytes) -> Mapping[str, Any]:
    """Returns what a commit says of itself; another program's may say nothing."""
    lines = (line for line in content.splitlines() if b'"commitInfo"' in line)
    found = (json.loads(line).get("commitInfo") for line in lines)
    return next(filter(None, found), {})


def restored_version(info: Mapping[str, Any]) -> int | None:
    """Returns the version that a commit restores; None if it was named by its time."""
    number = str((info.get("operationParameters") or {}).get("version"))
    return int(number) if number.isdecimal() else None


def encode(actions: Sequence[Mapping[str, Any]]) -> bytes:
    return "\n".join(json.dumps(each, ensure_ascii=False) for each in actions).encode() + b"\n"


def _struct(fields: Sequence[pa.Field] | pa.Schema) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {"name": each.name, "type": _kind(each.type), "nullable": True, "metadata": {}}
            for each in fields
        ],
    }


def _kind(kind: pa.DataType) -> Any:
    if kind in PLAIN:
        return PLAIN[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _kind(kind.value_type), "containsNull": True}
    if pa.types.is_struct(kind):
        return _struct(list(kind))
    if pa.types.is_map(kind):
        key, value = _kind(kind.key_type), _kind(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise SchemaRefused("Delta does not have this type", type=str(kind), hint="`cast` the column")


def arrow_schema(text: str) -> pa.Schema:
    """Returns the columns of a table, read from Delta's schema."""
    return pa.schema([_field(each) for each in json.loads(text)["fields"]])


def _field(spelled: Mapping[str, Any]) -> pa.Field:
    return pa.field(spelled["name"], _arrow(spelled["type"]))


def _arrow(spelled: Any) -> pa.DataType:
    if isinstance(spelled, str):
        if spelled.startswith("decimal("):
            digits, scale = spelled[8:-1].split(",")
            return pa.decimal128(int(digits), int(scale))
        return ARROW[spelled]
    if spelled["type"] == "array":
        return pa.list_(pa.field("element", _arrow(spelled["elementType"])))
    if spelled["type"] == "map":
        return pa.map_(_arrow(spelled["keyType"]), _arrow(spelled["valueType"]))
    return pa.struct([_field(each) for each in spelled["fields"]])


def _has_ntz(kind: pa.DataType) -> bool:
    if kind == pa.timestamp("us"):
        return True
    if pa.types.is_struct(kind):
        return any(_has_ntz(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _has_ntz(kind.value_type)
    return pa.types.is_map(kind) and (_has_ntz(kind.key_type) or _has_ntz(kind.item_type))
