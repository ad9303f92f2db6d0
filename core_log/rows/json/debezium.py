"""Debezium's JSON events: read as changes, strictly, and written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.model.changes import OP_CODES, ColumnOrValue, Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.records.row_writer import RowColumn, RowPart, ValueEncoding
from headwater.core_log.rows.codec import TRUNCATE_KEY, Encoded, with_tombstones
from headwater.core_log.rows.connect_schema import envelope_schema, source_shape, text_of
from headwater.core_log.rows.converters.row import RowConverters, refuse
from headwater.core_log.rows.json.flat_codec import (
    NO_FRAME,
    Frame,
    encode_keys,
    frame_of,
    key_frame,
)
from headwater.core_log.rows.json.scanner import ScannedEvents, is_ready_for, scanner_for
from headwater.core_log.rows.json.strict_reader import (
    carrier,
    columns_of,
    parse,
    without_carrier,
)
from headwater.core_log.rows.json.writer import (
    NULL,
    constant,
    join,
    json_text,
    member_name,
    object_parts,
)
from headwater.core_log.rows.settings import WireSettings

NO_OPERATION = 255
CODE_OPERATIONS = np.full(256, NO_OPERATION, np.uint8)
CODE_OPERATIONS[[ord(code) for code in OP_CODES[: Operation.TRUNCATE]]] = range(4)
OPERATIONS = {code: number for number, code in enumerate(OP_CODES[: Operation.TRUNCATE])}
UNKNOWN = "`op` is none of r, c, u and d"
LARGEST = 2**63 - 1
CALM_MAX = 0.5
"""A column that changes in a smaller share of its rows is written once per run of equal values."""
AFTER, NO_AFTER = b',"after":', b',"after":null'


def read_events(values: pa.Array, forms: RowConverters, *, has_schemas: bool) -> TableChanges:
    """Reads events by compiled code if it can; else exactly the same without it."""
    found = None if has_schemas else scan_events(RecordField.of(values), forms)
    return parse_events(values, forms, has_schemas=has_schemas) if found is None else found


def scan_events(values: RecordField, forms: RowConverters) -> TableChanges | None:
    """Reads by compiled code; returns None without a compiler, or if an event has an unusual
    form."""
    if not is_ready_for(len(values)):
        return None
    scanner = forms.once("scanner", lambda: scanner_for(carrier(forms.wire_type)))
    scanned = None if scanner is None else scanner.events(values)
    return None if scanned is None else _read_scanned(scanned, forms)


def _read_scanned(scanned: ScannedEvents, forms: RowConverters) -> TableChanges:
    operations = CODE_OPERATIONS[scanned.codes]
    refuse({UNKNOWN: pa.array(operations == NO_OPERATION)})
    rows = forms.from_wire(scanned.rows, len(operations), unpack=without_carrier)
    forms.refuse_nulls(rows, pa.array(operations == Operation.DELETE))
    source = {"ts_us": pa.array(scanned.committed_us)}
    before = None
    if scanned.images:
        row_numbers = np.flatnonzero(scanned.has_image)
        before = _read_images(scanned.images, row_numbers, len(operations), forms)
    return TableChanges(forms.schema, rows, pa.array(operations), source, before=before)


def parse_events(values: pa.Array, forms: RowConverters, *, has_schemas: bool) -> TableChanges:
    """Reads events one by one. Fields outside of the rows may be of any kind: connectors and
    versions write different ones."""
    documents = parse(values, has_schemas=has_schemas)
    events = [each if isinstance(each, dict) else {} for each in documents]
    codes = [each.get("op") for each in events]
    operations = pa.array(
        [OPERATIONS.get(each) if isinstance(each, str) else None for each in codes], pa.uint8()
    )
    rows = [each.get("before" if each.get("op") == "d" else "after") for each in events]
    committed_us = pa.array(map(_committed_us, events), pa.int64())
    refuse(
        {
            UNKNOWN: operations.is_null(),
            "the row is missing": pa.array([row is None for row in rows], pa.bool_()),
            "the time of the commit is missing": committed_us.is_null(),
        }
    )
    read = _read_documents(rows, forms)
    forms.refuse_nulls(read, pc.equal(operations, int(Operation.DELETE)))
    images = [
        (at, each["before"])
        for at, each in enumerate(events)
        if each["op"] != "d" and each.get("before") is not None
    ]
    before = None
    if images:
        row_numbers = np.array([at for at, _ in images], np.int64)
        with _about_images(row_numbers):
            columns = columns_of([row for _, row in images], carrier(forms.wire_type))
        before = _read_images(columns, row_numbers, len(events), forms)
    source: dict[str, ColumnOrValue] = {"ts_us": committed_us}
    return TableChanges(forms.schema, read, operations, source, before=before)


def _committed_us(event: Mapping[str, Any]) -> int | None:
    source = event.get("source")
    if not isinstance(source, dict):
        return None
    for name, factor in (("ts_us", 1), ("ts_ms", 1_000)):
        number = source.get(name)
        if type(number) is int and abs(number * factor) <= LARGEST:
            return number * factor
    return None


def read_rows(values: pa.Array, forms: RowConverters) -> pa.RecordBatch:
    """Reads a column of rows; raises `RowsRejected`."""
    kind = carrier(forms.wire_type)
    scanner = scanner_for(kind) if is_ready_for(len(values)) else None
    columns = None if scanner is None else scanner.objects(RecordField.of(values))
    if columns is None:
        return _read_documents(parse(values), forms)
    return forms.from_wire(columns, len(values), unpack=without_carrier)


def _read_documents(rows: Sequence[Any], forms: RowConverters) -> pa.RecordBatch:
    columns = columns_of(rows, carrier(forms.wire_type))
    return forms.from_wire(columns, len(rows), unpack=without_carrier)


def _read_images(
    columns: Sequence[pa.Array], row_numbers: Int64Array, row_count: int, forms: RowConverters
) -> pa.StructArray:
    """Returns the rows before updates, each at its index among all rows, null elsewhere."""
    with _about_images(row_numbers):
        images = forms.from_wire(columns, len(row_numbers), unpack=without_carrier)
    indices, is_missing = np.zeros(row_count, np.int64), np.ones(row_count, np.bool_)
    indices[row_numbers], is_missing[row_numbers] = np.arange(len(row_numbers)), False
    return images.to_struct_array().take(pa.array(indices, mask=is_missing))


@contextmanager
def _about_images(row_numbers: Int64Array) -> Iterator[None]:
    """Adds to rejected rows the events they belong to."""
    try:
        yield
    except RowsRejected as error:
        reasons = {int(row_numbers[row]): f"before: {why}" for row, why in error.reasons.items()}
        raise RowsRejected(error.problem, reasons=reasons) from None


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
            parts = truncate_envelope(changes, now_us=now_us)
            values = join([opening, *parts, closing], 1, kind=pa.binary())
            return Encoded(pa.array([TRUNCATE_KEY], pa.binary()), values, None)
        texts = forms.to_json(changes.rows)
        frame = key_frame(forms, topic=self._topic, has_schemas=self._wire.has_schemas)
        keys = encode_keys(forms, texts, len(changes), frame)
        row = object_parts(changes.schema.names, texts.values())
        parts = envelope(changes, row, _before(changes, forms), now_us=now_us)
        values = join([opening, *parts, closing], len(changes), kind=pa.binary())
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


def _before(changes: TableChanges, forms: RowConverters) -> list[RowPart] | None:
    """Returns the rows before updates as objects; null if there is none."""
    before = changes.before
    if before is None or before.null_count == len(before):
        return None
    rows = pa.RecordBatch.from_arrays(before.flatten(), schema=forms.schema.arrow)
    parts = object_parts(forms.schema.names, forms.to_json(rows).values())
    if not before.null_count:
        return parts
    texts = pc.if_else(before.is_valid(), join(parts, len(changes)), None)
    return [RowColumn(texts, ValueEncoding.RAW)]


def envelope(
    changes: TableChanges,
    row: Sequence[RowPart],
    before: Sequence[RowPart] | None,
    *,
    now_us: int,
) -> list[RowPart]:
    """Returns the envelope's parts. `row` is an object; `before` is one for updates if it is known,
    else null."""
    operations = changes.operations
    opening: list[RowPart] = [*(before or [NULL]), AFTER]
    closing: RowPart = b""
    if len(pc.unique(operations)) == 1:
        operation = operations[0].as_py()
        code: RowPart = OP_CODES[operation].encode()
        if operation == Operation.DELETE:
            opening, closing = [], NO_AFTER
    else:
        is_deleted = pc.equal(operations, int(Operation.DELETE))
        code = _raw(pa.array(OP_CODES, pa.string()).take(operations))
        if pc.any(is_deleted).as_py():
            known = (NULL + AFTER).decode() if before is None else join(opening, len(changes))
            opening = [_raw(pc.if_else(is_deleted, "", known))]
            closing = _raw(pc.if_else(is_deleted, NO_AFTER.decode(), ""))
    return [
        b'{"before":', *opening, *row, closing,
        b',"source":', *block_parts(changes.source),
        b',"transaction":', *block_parts(changes.transaction),
        b',"op":"', code, b'",', _times(now_us), b"}",
    ]  # fmt: skip


def truncate_envelope(changes: TableChanges, *, now_us: int) -> list[RowPart]:
    return [
        b'{"before":null,"after":null,"source":', *block_parts(changes.source),
        b',"transaction":', *block_parts(changes.transaction),
        b',"op":"t",', _times(now_us), b"}",
    ]  # fmt: skip


def _times(now_us: int) -> bytes:
    return b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d' % (now_us // 1_000, now_us, now_us * 1_000)


def _raw(texts: pa.Array) -> RowColumn:
    return RowColumn(texts, ValueEncoding.RAW)


def block_parts(block: Mapping[str, ColumnOrValue] | None) -> list[RowPart]:
    """Returns an object whose members are columns or constants."""
    if block is None:
        return [NULL]
    block = {name: _of_one(value) for name, value in block.items()}
    runs = _Runs.of([value for value in block.values() if isinstance(value, pa.Array)])
    parts: list[RowPart] = []
    shared: list[RowPart] = [b"{"]
    for index, (name, value) in enumerate(block.items()):
        shared += [b"," if index else b"", member_name(name)]
        if not isinstance(value, pa.Array):
            shared.append(constant(value))
        elif runs.has(value):
            shared.append(json_text(runs.firsts(value)))
        else:
            parts += [*runs.spread(shared), json_text(value)]
            shared = []
    return [*parts, *runs.spread([*shared, b"}"])]


def _of_one(value: ColumnOrValue) -> ColumnOrValue:
    """Turns columns of a single row into constants."""
    return value[0].as_py() if isinstance(value, pa.Array) and len(value) == 1 else value


class _Runs(NamedTuple):
    """Runs of rows that share much of their `source` block, like the rows of one commit: shared
    fields are written once per run."""

    columns: tuple[pa.Array, ...]
    starts: pa.Array
    """The first row of each run."""
    numbers: pa.Array
    """The run of each row."""

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> "_Runs":
        changes = [_changes(column) for column in columns]
        calm = [
            index for index, change in enumerate(changes) if change.sum() <= CALM_MAX * len(change)
        ]
        if not calm:
            return cls((), None, None)
        is_start = np.logical_or.reduce([changes[index] for index in calm])
        numbers = np.cumsum(is_start) - 1
        chosen = tuple(columns[index] for index in calm)
        return cls(chosen, pa.array(np.flatnonzero(is_start)), pa.array(numbers))

    def has(self, column: pa.Array) -> bool:
        return any(column is each for each in self.columns)

    def firsts(self, column: pa.Array) -> pa.Array:
        return column.take(self.starts)

    def spread(self, parts: Sequence[RowPart]) -> list[RowPart]:
        """Returns parts per run as parts per row."""
        if all(isinstance(part, bytes) for part in parts):
            return list(parts)
        return [_raw(pa.DictionaryArray.from_arrays(self.numbers, join(parts, len(self.starts))))]


def _changes(column: pa.Array) -> BoolArray:
    """Returns where a column's value differs from the row before; a null always differs."""
    found = np.ones(len(column), np.bool_)
    if len(column) > 1:
        different = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
        found[1:] = different.fill_null(True).to_numpy(zero_copy_only=False)
    return found
