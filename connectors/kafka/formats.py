"""Chooses the reader of a topic's records by the configured format."""

import numpy as np
import pyarrow as pa

from headwater.connectors.kafka.debezium_events import DebeziumReader
from headwater.connectors.kafka.json_records import JsonReader
from headwater.connectors.kafka.json_rows import DecodedBatches, TopicBatch, TopicReader
from headwater.connectors.kafka.settings import KafkaSourceSettings
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.record_headers import header_lists
from headwater.core_log.records.record_views import RecordColumns


def reader_of(settings: KafkaSourceSettings, topic: str, schema_text: str) -> TopicReader:
    match settings.format:
        case "raw":
            return RawReader(topic)
        case "json":
            return JsonReader(topic, settings.key, schema_text)
    return DebeziumReader(settings, topic, schema_text)


class RawReader:
    """Returns every record as a row, with its partition and offset as the key."""

    def __init__(self, topic: str) -> None:
        self.table = TableId("", topic)
        headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        self.schema: TableSchema | None = TableSchema(
            self.table,
            (
                Column("partition", pa.int32(), is_nullable=False),
                Column("offset", pa.int64(), is_nullable=False),
                Column("timestamp", pa.timestamp("ms", "UTC"), is_nullable=False),
                Column("key", pa.binary()),
                Column("value", pa.binary()),
                Column("headers", headers, is_nullable=False),
            ),
            ("partition", "offset"),
        )

    def decode(self, columns: RecordColumns, *, partition: int) -> DecodedBatches:
        assert self.schema is not None, "raw records always look the same"
        count = len(columns)
        headers = header_lists(columns.headers)
        rows = pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(count, partition, dtype=np.int32)),
                pa.array(columns.offsets),
                pa.array(columns.timestamps_ms).cast(pa.timestamp("ms", "UTC")),
                columns.keys,
                columns.values,
                headers.cast(self.schema.column("headers").type),
            ],
            schema=self.schema.arrow,
        )
        operations = pa.array(np.full(count, Operation.INSERT, dtype=np.uint8))
        return DecodedBatches(
            [TopicBatch(self.schema, rows, operations, pa.array(np.arange(count)))], {}
        )

    def schema_text(self) -> str:
        return ""
