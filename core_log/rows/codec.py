"""The interface between changes of rows and records, which every value format implements."""

from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.rows.settings import WireSettings

SCHEMA_HEADER = "headwater.schema"
"""Number, as text, of the topic's schema that a record was written under."""
AT_HEADER = "headwater.at"
"""`<commit>#<index in that commit>`: the place of a change in the source's history."""
OPERATION_HEADER = "headwater.op"
"""`truncate` on truncate markers, `reread` on rows read beside the stream; absent otherwise."""
REREAD = b"reread"
TRUNCATE_KEY = b'{"__headwater":"truncate"}'


class Encoded(NamedTuple):
    """Records in order. A delete is followed by a tombstone, so there can be more records than
    changes."""

    keys: pa.BinaryArray
    """Null for tables without a key."""
    values: pa.BinaryArray
    """Null for tombstones."""
    changes: pa.Int64Array | None
    """The change of each record; None if they are one to one."""


class RowCodec(Protocol):
    """A value format with its settings. It knows no topic, no header and no log."""

    def encode(self, changes: TableChanges, *, now_us: int) -> Encoded:
        """Encodes changes. `now_us` is the processing time in Debezium's envelope."""
        ...

    def decode(
        self, keys: pa.BinaryArray, values: pa.BinaryArray, schema: TableSchema
    ) -> TableChanges:
        """Decodes records strictly: a value that does not fit its column raises `DecodeError` and
        never becomes a null. The records contain no tombstones or truncate markers."""
        ...

    def scan(self, values: RecordField, schema: TableSchema) -> TableChanges | None:
        """Returns the same as `decode`, read in place; None if only `decode` can read the
        records."""
        ...


def codec_for(wire: WireSettings, *, topic: str) -> RowCodec:
    """Returns the codec. `topic` names the schemas inside the records and the registry's subjects
    for Avro."""
    match wire.value:
        case "debezium-json":
            from headwater.core_log.rows.json.debezium import DebeziumJson

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


def key_values(column: pa.Array | pa.ChunkedArray) -> Any:
    """Returns a column as part of a key. Databases take negative zero for zero, and every NaN for
    one: rows of the same key."""
    if column.type not in (pa.float32(), pa.float64()):
        return column
    zero, nan = pa.scalar(0, column.type), pa.scalar(np.nan, column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))


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
