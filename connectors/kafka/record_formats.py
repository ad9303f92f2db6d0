"""Readers of a topic's records by the configured format: raw records, and plain JSON objects."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.kafka.debezium_events import DebeziumReader
from headwater.connectors.kafka.json_rows import (
    DecodedBatches,
    TopicBatch,
    TopicReader,
    as_line,
    column_types,
    read_rows,
    text_of,
    widen,
    without,
)
from headwater.connectors.kafka.settings import KafkaSourceSettings
from headwater.core_log.foundation.errors import DecodeError, RowsRejected
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.record_headers import header_lists
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.schema_text import schema_from_json
from headwater.core_log.rows.settings import WireSettings

SAMPLE = 1_000
"""Number of records from which a schema is inferred."""


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


class JsonReader:
    """Reads objects as rows. A new field widens the table; a missing field is null; a field of
    another type than its column makes its record a bad one."""

    def __init__(self, topic: str, key: tuple[str, ...], schema_text: str) -> None:
        self.table, self._key = TableId("", topic), key
        self.schema = schema_from_json(json.loads(schema_text))[0] if schema_text else None

    def decode(self, columns: RecordColumns, *, partition: int) -> DecodedBatches:
        is_tombstone = columns.values.is_null()
        indices = pc.indices_nonzero(pc.invert(is_tombstone)).cast(pa.int64())
        values = columns.values.drop_null()
        if self.schema is None:
            self.schema = self._infer(values)
        if self.schema is None:
            reason = "no row shows the columns"
            return DecodedBatches([], dict.fromkeys(indices.to_pylist(), reason))
        try:
            rows, rejected = _fitting(values, self.schema)
            if rejected:
                self.schema = self._widen(self.schema, values)
                rows, rejected = _fitting(values, self.schema)
        except DecodeError:
            rows, rejected = _fitting(values, self.schema)
        if not self._key:
            return self._inserts(rows, rejected, indices)
        return self._upserts(columns, rows, rejected, indices)

    def schema_text(self) -> str:
        return "" if self.schema is None else text_of(self.schema, WireSettings())

    def _inserts(
        self, rows: pa.RecordBatch, rejected: Mapping[int, str], indices: pa.Int64Array
    ) -> DecodedBatches:
        """Returns inserted rows. Without a key column, a record without a value is ignored."""
        assert self.schema is not None, "rows were read by a schema"
        good = without(len(indices), rejected)
        operations = pa.array(np.full(len(good), Operation.INSERT, dtype=np.uint8))
        named = {indices[row].as_py(): why for row, why in rejected.items()}
        return DecodedBatches(
            [TopicBatch(self.schema, rows, operations, indices.take(good))], named
        )

    def _upserts(
        self,
        columns: RecordColumns,
        rows: pa.RecordBatch,
        rejected: Mapping[int, str],
        indices: pa.Int64Array,
    ) -> DecodedBatches:
        """Returns rows and deletes in the order of their records."""
        assert self.schema is not None, "rows were read by a schema"
        good = indices.take(without(len(indices), rejected))
        named = {indices[row].as_py(): why for row, why in rejected.items()}
        gone = pc.indices_nonzero(columns.values.is_null()).cast(pa.int64())
        keys, bad = _keys_of(columns.keys.take(gone), self.schema)
        named |= {gone[row].as_py(): why for row, why in bad.items()}
        deleted = gone.take(without(len(gone), bad))
        all_indices = np.concatenate((np.asarray(good), np.asarray(deleted)))
        order = pa.array(np.argsort(all_indices, kind="stable"))
        codes = np.repeat(
            np.array([Operation.UPDATE, Operation.DELETE], np.uint8), [len(good), len(deleted)]
        )
        table = pa.Table.from_batches([rows, keys]).take(order).combine_chunks()
        [batch] = table.to_batches() or [rows.slice(0, 0)]
        operations, taken = pa.array(codes).take(order), pa.array(np.sort(all_indices))
        return DecodedBatches([TopicBatch(self.schema, batch, operations, taken)], named)

    def _infer(self, values: pa.BinaryArray) -> TableSchema | None:
        documents = _objects(values)
        if not documents:
            return None
        kinds = column_types(documents)
        missing = [name for name in self._key if name not in kinds]
        if missing:
            raise DecodeError(
                "records lack columns of the key",
                hint="correct `key`",
                topic=self.table.name,
                columns=missing,
            )
        columns = [Column(n, k, is_nullable=n not in self._key) for n, k in kinds.items()]
        return TableSchema(self.table, tuple(columns), self._key)

    def _widen(self, schema: TableSchema, values: pa.BinaryArray) -> TableSchema:
        documents = _objects(values)
        return widen(schema, column_types(documents)) if documents else schema


def _fitting(
    values: pa.BinaryArray, schema: TableSchema
) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """Returns the rows that fit, and the reasons why the others do not."""
    bad: dict[int, str] = {}
    indices = np.arange(len(values))
    while True:
        try:
            return read_rows(values.take(pa.array(indices)), schema), bad
        except RowsRejected as error:
            bad |= {int(indices[row]): why for row, why in error.reasons.items()}
            indices = np.delete(indices, list(error.reasons))


def _keys_of(keys: pa.BinaryArray, schema: TableSchema) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """Returns the rows of deletes: the record's key is an object or, for one column, its value."""
    found: list[dict[str, Any]] = []
    bad: dict[int, str] = {}
    for index, key in enumerate(keys.to_pylist()):
        try:
            document = orjson.loads(key or b"")
            if not isinstance(document, dict) and len(schema.key) == 1:
                document = {schema.key[0]: document}
            row = {name: document[name] for name in schema.key}
            if None in row.values():
                raise ValueError("a column of the key is null")
            pa.RecordBatch.from_pylist([row], schema=schema.arrow)
            found.append(row)
        except (ValueError, KeyError, TypeError, pa.ArrowException):
            bad[index] = "the key of a record without a value is not the table's key"
    return pa.RecordBatch.from_pylist(found, schema=schema.arrow), bad


def _objects(values: pa.BinaryArray) -> list[bytes]:
    """Returns the first values that are JSON objects, each on one line."""
    found = []
    for value in values[:SAMPLE].to_pylist():
        try:
            document = orjson.loads(value)
        except orjson.JSONDecodeError:
            continue
        if isinstance(document, dict) and (line := as_line(document)) is not None:
            found.append(line)
    return found
