"""The value formats `debezium-avro` and `flat-avro`, in Confluent's frame against a registry."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.changes import ColumnOrValue, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.rows import connect_schema
from headwater.core_log.rows.avro.debezium import envelope_parts, in_order, read_events, read_flat
from headwater.core_log.rows.avro.reader import AvroReader
from headwater.core_log.rows.avro.schema import avro_schema, encoded_parts, zeros_where_null
from headwater.core_log.rows.avro.schema_registry import SchemaRegistry, frame, read_framed
from headwater.core_log.rows.avro.writer import AvroPart, join, spread, value_parts
from headwater.core_log.rows.codec import TRUNCATE_KEY, Encoded, key_values, with_tombstones
from headwater.core_log.rows.converters.row import RowConverters
from headwater.core_log.rows.json.flat_codec import (
    flat_schema,
    metadata_columns,
    refuse_taken_names,
)
from headwater.core_log.rows.settings import WireSettings


class AvroTopic:
    """The common part of both formats: a topic's keys, its subjects, and its latest schemas."""

    def __init__(self, wire: WireSettings, *, topic: str) -> None:
        if not wire.registry.startswith(("http://", "https://")):
            raise ConfigError(
                "Avro values need a schema registry", hint="set `log.registry` to its http(s) URL"
            )
        self._wire, self.topic = wire, topic
        self._registry = SchemaRegistry(wire.registry)
        self._readers: dict[int, AvroReader] = {}
        self._forms: RowConverters | None = None

    def forms_of(self, schema: TableSchema) -> RowConverters:
        forms = self._forms  # another thread may replace them meanwhile
        if forms is None or forms.schema != schema:
            forms = self._forms = RowConverters.of(schema, self._wire)
        return forms

    def frame(
        self,
        part: str,
        forms: RowConverters,
        make: Callable[[], dict[str, Any]],
        shape: Hashable = None,
    ) -> bytes:
        """Returns the frame for values of the schema that `make` makes, registered as
        `<topic>-<part>`."""
        subject = f"{self.topic}-{part}"
        return forms.once(
            (part, shape), lambda: frame(self._registry.number_of(subject, avro_schema(make())))
        )

    def encode_keys(self, forms: RowConverters, columns: Mapping[str, pa.Array]) -> pa.BinaryArray:
        count = len(next(iter(columns.values()), ()))
        if not forms.schema.key:
            return pa.nulls(count, pa.binary())
        parts: list[AvroPart] = [self.frame("key", forms, lambda: self._key_schema(forms))]
        for name in forms.schema.key:
            parts += value_parts(key_values(columns[name]), is_optional=False)
        return join(parts, count)

    def _key_schema(self, forms: RowConverters) -> dict[str, Any]:
        return connect_schema.key_schema(forms.schema, forms.forms, topic=self.topic)

    def read(self, values: pa.BinaryArray) -> Iterator[tuple[Int64Array, pa.StructArray]]:
        return read_framed(values, self._reader)

    def _reader(self, number: int) -> AvroReader:
        if number not in self._readers:
            self._readers[number] = AvroReader.of(self._registry.schema_of(number))
        return self._readers[number]


class DebeziumAvro:
    """The format `debezium-avro`; names and meanings are those of Debezium with Confluent's
    converter."""

    def __init__(self, wire: WireSettings, *, topic: str) -> None:
        self._topic = AvroTopic(wire, topic=topic)

    def encode(self, changes: TableChanges, *, now_us: int) -> Encoded:
        forms = self._topic.forms_of(changes.schema)
        shape = connect_schema.source_shape(changes.source)
        opening = self._topic.frame(
            "value", forms, lambda: self._schema(forms, changes.source), shape
        )
        columns = forms.to_wire(changes.rows)
        row = [] if changes.is_truncate else encoded_parts(changes.schema, columns)
        before = _before(changes, forms)
        parts = [opening, *envelope_parts(changes, row, before, now_us=now_us)]
        values = join(parts, len(changes))
        if changes.is_truncate:
            return Encoded(pa.array([TRUNCATE_KEY], pa.binary()), values, None)
        return with_tombstones(self._topic.encode_keys(forms, columns), values, changes.operations)

    def _schema(self, forms: RowConverters, source: Mapping[str, ColumnOrValue]) -> dict[str, Any]:
        return connect_schema.envelope_schema(
            forms.schema, forms.forms, source, topic=self._topic.topic
        )

    def decode(
        self, keys: pa.BinaryArray, values: pa.BinaryArray, schema: TableSchema
    ) -> TableChanges:
        forms = self._topic.forms_of(schema)
        parts = [(rows, read_events(events, forms)) for rows, events in self._topic.read(values)]
        return in_order(parts, forms)

    def scan(self, values: RecordField, schema: TableSchema) -> None:
        """Returns None: Avro is read by `decode` only."""


class FlatAvro:
    """The format `flat-avro`: the rows of `flat-json`, with the same fields after the table's."""

    def __init__(self, wire: WireSettings, *, topic: str) -> None:
        self._topic = AvroTopic(wire, topic=topic)

    def encode(self, changes: TableChanges, *, now_us: int) -> Encoded:
        forms = self._topic.forms_of(changes.schema)
        refuse_taken_names(changes.schema)
        opening = self._topic.frame("value", forms, lambda: flat_schema(forms, self._topic.topic))
        columns = dict(forms.to_wire(changes.rows))
        if changes.is_truncate:
            columns |= {name: zeros_where_null(columns[name]) for name in changes.schema.key}
        parts: list[AvroPart] = [opening, *encoded_parts(changes.schema, columns)]
        for column in metadata_columns(changes):
            parts += value_parts(column, is_optional=True)
        values = join(parts, len(changes))
        if changes.is_truncate:
            return Encoded(pa.array([TRUNCATE_KEY], pa.binary()), values, None)
        return with_tombstones(self._topic.encode_keys(forms, columns), values, changes.operations)

    def decode(
        self, keys: pa.BinaryArray, values: pa.BinaryArray, schema: TableSchema
    ) -> TableChanges:
        forms = self._topic.forms_of(schema)
        parts = [(rows, read_flat(found, forms)) for rows, found in self._topic.read(values)]
        return in_order(parts, forms)

    def scan(self, values: RecordField, schema: TableSchema) -> None:
        """Returns None: Avro is read by `decode` only."""


def _before(changes: TableChanges, forms: RowConverters) -> pa.Array | None:
    """Returns the encoded rows before updates; null if there is none."""
    before = changes.before
    if before is None or before.null_count == len(before):
        return None
    is_there = before.is_valid()
    rows = pa.RecordBatch.from_struct_array(before.filter(is_there))
    parts = encoded_parts(forms.schema, forms.to_wire(rows))
    return spread(join(parts, rows.num_rows), is_there)
