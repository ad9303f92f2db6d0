"""The value format `debezium-json`: Debezium's events as its JSON converter writes them."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.changes import ColumnOrValue, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.rows.codec import TRUNCATE_KEY, Encoded
from headwater.core_log.rows.connect_schema import envelope_schema, source_shape, text_of
from headwater.core_log.rows.converters.row import RowConverters
from headwater.core_log.rows.json.debezium_reader import read_events, scan_events
from headwater.core_log.rows.json.debezium_writer import envelope, truncate_envelope
from headwater.core_log.rows.json.key_codec import NO_FRAME, Frame, encode_keys, frame_of, key_frame
from headwater.core_log.rows.json.writer import JsonPart, join, object_pieces
from headwater.core_log.rows.settings import WireSettings
from headwater.core_log.rows.tombstones import with_tombstones


class DebeziumJson:
    """Keeps what belongs to the last schema it met, since a topic seldom has two at a time."""

    def __init__(self, wire: WireSettings, *, topic: str) -> None:
        self._wire, self._topic = wire, topic
        self._forms: RowConverters | None = None

    def encode(self, changes: TableChanges, *, now_us: int) -> Encoded:
        forms = self._forms_of(changes.schema)
        opening, closing = self._value_frame(forms, changes.source)
        if changes.is_truncate:
            pieces = truncate_envelope(changes, now_us=now_us)
            values = join([opening, *pieces, closing], 1, kind=pa.binary())
            return Encoded(pa.array([TRUNCATE_KEY], pa.binary()), values, None)
        texts = forms.to_json(changes.rows)
        frame = key_frame(forms, topic=self._topic, has_schemas=self._wire.has_schemas)
        keys = encode_keys(forms, texts, len(changes), frame)
        row = object_pieces(changes.schema.names, texts.values())
        pieces = envelope(changes, row, _before(changes, forms), now_us=now_us)
        values = join([opening, *pieces, closing], len(changes), kind=pa.binary())
        return with_tombstones(keys, values, changes.operations)

    def decode(
        self, keys: pa.BinaryArray, values: pa.BinaryArray, schema: TableSchema
    ) -> TableChanges:
        """Keys say nothing that values do not."""
        forms = self._forms_of(schema)
        return read_events(values, forms, has_schemas=self._wire.has_schemas)

    def scan(self, values: RecordField, schema: TableSchema) -> TableChanges | None:
        return None if self._wire.has_schemas else scan_events(values, self._forms_of(schema))

    def _forms_of(self, schema: TableSchema) -> RowConverters:
        forms = self._forms  # another thread may put others in their place meanwhile
        if forms is None or forms.schema != schema:
            forms = self._forms = RowConverters.of(schema, self._wire)
        return forms

    def _value_frame(self, forms: RowConverters, source: Mapping[str, ColumnOrValue]) -> Frame:
        if not self._wire.has_schemas:
            return NO_FRAME
        return forms.once(source_shape(source), lambda: self._schema_frame(forms, source))

    def _schema_frame(self, forms: RowConverters, source: Mapping[str, ColumnOrValue]) -> Frame:
        schema = envelope_schema(forms.schema, forms.forms, source, topic=self._topic)
        return frame_of(text_of(schema))


def _before(changes: TableChanges, forms: RowConverters) -> list[JsonPart] | None:
    """The rows before updates as objects; null where there is none."""
    before = changes.before
    if before is None or before.null_count == len(before):
        return None
    rows = pa.RecordBatch.from_arrays(before.flatten(), schema=forms.schema.arrow)
    pieces = object_pieces(forms.schema.names, forms.to_json(rows).values())
    if not before.null_count:
        return pieces
    return [pc.if_else(before.is_valid(), join(pieces, len(changes)), None)]
