"""Reads Debezium's JSON events as changes, strictly."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.model.changes import OP_CODES, ColumnOrValue, Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.rows.codec import TRUNCATE_KEY, Encoded, with_tombstones
from headwater.core_log.rows.connect_schema import envelope_schema, source_shape, text_of
from headwater.core_log.rows.converters.row import RowConverters, refuse
from headwater.core_log.rows.json import layout_reader
from headwater.core_log.rows.json.debezium_writer import envelope, truncate_envelope
from headwater.core_log.rows.json.envelope_splitter import as_text, cut_events
from headwater.core_log.rows.json.flat_codec import (
    NO_FRAME,
    Frame,
    encode_keys,
    frame_of,
    key_frame,
)
from headwater.core_log.rows.json.layout_reader import EventLayout
from headwater.core_log.rows.json.object_reader import names_in, read_objects, without_carrier
from headwater.core_log.rows.json.scanner import ScannedEvents, is_ready_for, scanner_for
from headwater.core_log.rows.json.strict_reader import carrier
from headwater.core_log.rows.json.writer import JsonPart, join, object_pieces
from headwater.core_log.rows.settings import WireSettings

OPERATIONS = pa.array([f'"{code}"' for code in OP_CODES[: Operation.TRUNCATE]], pa.string())
NO_OPERATION = 255
CODE_OPERATIONS = np.full(256, NO_OPERATION, np.uint8)
CODE_OPERATIONS[[ord(code) for code in OP_CODES[: Operation.TRUNCATE]]] = range(4)
UNKNOWN = "`op` is none of r, c, u and d"


def read_events(values: pa.BinaryArray, forms: RowConverters, *, has_schemas: bool) -> TableChanges:
    found = None if has_schemas else scan_events(RecordField.of(values), forms)
    if found is not None:
        return found
    texts = as_text(values)
    if not has_schemas and "source" not in names_in(forms.wire_type):
        layout = layout_reader.cut(texts)
        if layout is not None:
            return _read_layout(layout, forms)
    return _read_parsed(texts, forms, has_schemas=has_schemas)


def scan_events(values: RecordField, forms: RowConverters) -> TableChanges | None:
    """Reads by compiled code; returns None without a compiler, or if an event has an unusual
    form."""
    if not is_ready_for(len(values)):
        return None
    scanner = forms.once("scanner", lambda: scanner_for(carrier(forms.wire_type)))
    scanned = None if scanner is None else scanner.events(values)
    return None if scanned is None else _read_scanned(scanned, forms)


def _read_scanned(scanned: ScannedEvents, forms: RowConverters) -> TableChanges:
    """Reads events by the compiled scan: those of our own encoder, which are nearly all."""
    operations = CODE_OPERATIONS[scanned.codes]
    refuse({UNKNOWN: pa.array(operations == NO_OPERATION)})
    rows = forms.from_wire(scanned.rows, len(operations), unpack=without_carrier)
    forms.refuse_nulls(rows, pa.array(operations == Operation.DELETE))
    source = {"ts_us": pa.array(scanned.committed_us)}
    before = None
    if scanned.images:
        places = np.flatnonzero(scanned.has_image)
        with _about_images(places):
            images = forms.from_wire(scanned.images, len(places), unpack=without_carrier)
        before = _spread(images, places, len(operations))
    return TableChanges(forms.schema, rows, pa.array(operations), source, before=before)


def _read_layout(layout: EventLayout, forms: RowConverters) -> TableChanges:
    """Reads them without compiled code, or if rows have nested columns."""
    operations = CODE_OPERATIONS[layout.codes]
    is_unknown = (operations == NO_OPERATION) | (
        (operations == Operation.DELETE) != layout.is_deleted
    )
    refuse({UNKNOWN: pa.array(is_unknown)})
    rows = read_rows(layout.row, forms)
    forms.refuse_nulls(rows, pa.array(layout.is_deleted))
    source = {"ts_us": pa.array(layout.committed_us)}
    return TableChanges(forms.schema, rows, pa.array(operations), source)


def _read_parsed(texts: pa.StringArray, forms: RowConverters, *, has_schemas: bool) -> TableChanges:
    event = cut_events(texts, has_schemas=has_schemas)
    operations = pc.index_in(event.op, OPERATIONS).cast(pa.uint8())
    is_deleted = pc.equal(operations, int(Operation.DELETE))
    row_texts = pc.if_else(is_deleted, event.before, event.after)
    refuse(
        {
            UNKNOWN: operations.is_null(),
            "the row is missing": row_texts.is_null(),
            "the time of the commit is missing": event.committed_us.is_null(),
        }
    )
    rows = read_rows(row_texts, forms)
    forms.refuse_nulls(rows, is_deleted)
    source = {"ts_us": event.committed_us}
    images = pc.if_else(is_deleted, None, event.before)
    return TableChanges(forms.schema, rows, operations, source, before=_read_images(images, forms))


def read_rows(texts: pa.StringArray, forms: RowConverters) -> pa.RecordBatch:
    """Reads rows; raises `RowsRejected`."""
    columns = read_objects(texts, carrier(forms.wire_type))
    return forms.from_wire(columns, len(texts), unpack=without_carrier)


def _read_images(texts: pa.StringArray, forms: RowConverters) -> pa.StructArray | None:
    """Reads rows before updates, null if there is none."""
    is_there = texts.is_valid()
    if not pc.any(is_there).as_py():
        return None
    places = pc.indices_nonzero(is_there).to_numpy()
    with _about_images(places):
        images = read_rows(texts.filter(is_there), forms)
    return _spread(images, places, len(texts))


@contextmanager
def _about_images(places: Int64Array) -> Iterator[None]:
    """Adds to rejected rows the events they belong to."""
    try:
        yield
    except RowsRejected as error:
        reasons = {int(places[row]): f"before: {why}" for row, why in error.reasons.items()}
        raise RowsRejected(error.problem, reasons=reasons) from None


def _spread(images: pa.RecordBatch, places: Int64Array, row_count: int) -> pa.StructArray:
    """Returns each row at its index among all rows, null elsewhere."""
    indices, is_missing = np.zeros(row_count, np.int64), np.ones(row_count, np.bool_)
    indices[places], is_missing[places] = np.arange(len(places)), False
    return images.to_struct_array().take(pa.array(indices, mask=is_missing))


class DebeziumJson:
    """The format `debezium-json`. It caches the last schema, because a topic seldom has two at a
    time."""

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
        """Decodes values only: keys contain nothing more."""
        forms = self._forms_of(schema)
        return read_events(values, forms, has_schemas=self._wire.has_schemas)

    def scan(self, values: RecordField, schema: TableSchema) -> TableChanges | None:
        return None if self._wire.has_schemas else scan_events(values, self._forms_of(schema))

    def _forms_of(self, schema: TableSchema) -> RowConverters:
        forms = self._forms  # another thread may replace them meanwhile
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
    """Returns the rows before updates as objects; null if there is none."""
    before = changes.before
    if before is None or before.null_count == len(before):
        return None
    rows = pa.RecordBatch.from_arrays(before.flatten(), schema=forms.schema.arrow)
    pieces = object_pieces(forms.schema.names, forms.to_json(rows).values())
    if not before.null_count:
        return pieces
    return [pc.if_else(before.is_valid(), join(pieces, len(changes)), None)]
