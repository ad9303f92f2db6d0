"""The seam between changes of rows and records: what every value format offers."""

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.rows.settings import WireSettings

SCHEMA_HEADER = "headwater.schema"
"""Which schema of its topic a record was written under: a number, as text."""
AT_HEADER = "headwater.at"
"""`<commit>#<index in that commit>`: where in the source's history a change stands."""
OPERATION_HEADER = "headwater.op"
"""`truncate` on truncate markers; not there otherwise."""
TRUNCATE_KEY = b'{"__headwater":"truncate"}'


class Encoded(NamedTuple):
    """Records in order; a delete is followed by a tombstone, so there can be more of them."""

    keys: pa.BinaryArray
    """Null for tables without a key."""
    values: pa.BinaryArray
    """Null for tombstones."""
    changes: pa.Int64Array | None
    """Which change each record belongs to; None when they are one to one."""


class RowCodec(Protocol):
    """One value format under one set of choices. Knows no topic, no header and no log."""

    def encode(self, changes: TableChanges, *, now_us: int) -> Encoded:
        """`now_us` is the processing time that Debezium's envelope carries."""
        ...

    def decode(
        self, keys: pa.BinaryArray, values: pa.BinaryArray, schema: TableSchema
    ) -> TableChanges:
        """Strict: a value that does not fit its column raises `DecodeError`, and is never a null.
        Tombstones and truncate markers are not among the records."""
        ...

    def scan(self, values: RecordField, schema: TableSchema) -> TableChanges | None:
        """What `decode` gives, read where the values lie; None where only `decode` can tell."""
        ...


def codec_for(wire: WireSettings, *, topic: str) -> RowCodec:
    """`topic` names the schemas inside the records and, for Avro, the registry's subjects."""
    match wire.value:
        case "debezium-json":
            from headwater.core_log.rows.json.debezium_reader import DebeziumJson

            return DebeziumJson(wire, topic=topic)
        case "flat-json":
            from headwater.core_log.rows.json.flat_codec import FlatJson

            return FlatJson(wire, topic=topic)
        case "debezium-avro":
            from headwater.core_log.rows.avro.codecs import DebeziumAvro

            return DebeziumAvro(wire, topic=topic)
        case "flat-avro":
            from headwater.core_log.rows.avro.codecs import FlatAvro

            return FlatAvro(wire, topic=topic)


def with_tombstones(keys: pa.Array, values: pa.Array, operations: pa.UInt8Array) -> Encoded:
    is_delete = operations.to_numpy() == Operation.DELETE
    if not is_delete.any():
        return Encoded(keys, values, None)
    counts = 1 + is_delete
    changes = np.repeat(np.arange(len(is_delete)), counts)
    is_tombstone = np.zeros(len(changes), np.bool_)
    is_tombstone[np.cumsum(counts)[is_delete] - 1] = True
    return Encoded(
        keys.take(pa.array(changes)),
        values.take(pa.array(changes, mask=is_tombstone)),
        pa.array(changes),
    )
