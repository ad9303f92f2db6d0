"""The value format `flat-json`: rows as Debezium's ExtractNewRecordState writes them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.changes import OP_CODES, Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.records.row_writer import RowColumn
from headwater.core_log.rows.codec import TRUNCATE_KEY, Encoded, key_values, with_tombstones
from headwater.core_log.rows.connect_schema import key_schema, plain, row_fields, struct, text_of
from headwater.core_log.rows.converters.row import RowConverters, refuse
from headwater.core_log.rows.json.scanner import is_ready_for, scanner_for
from headwater.core_log.rows.json.strict_reader import (
    carrier,
    columns_of,
    parse,
    without_carrier,
)
from headwater.core_log.rows.json.writer import join, json_text, object_parts
from headwater.core_log.rows.settings import WireSettings

Frame = tuple[bytes, bytes]
"""The bytes before and after every value."""
NO_FRAME = (b"", b"")


def encode_keys(
    forms: RowConverters, texts: Mapping[str, RowColumn], row_count: int, frame: Frame
) -> pa.BinaryArray:
    """Returns the keys; null for tables without a key."""
    names = forms.schema.key
    if not names:
        return pa.nulls(row_count, pa.binary())
    columns = [RowColumn(key_values(texts[name].values), texts[name].kind) for name in names]
    parts = object_parts(names, columns)
    return join([frame[0], *parts, frame[1]], row_count, kind=pa.binary())


def key_frame(forms: RowConverters, *, topic: str, has_schemas: bool) -> Frame:
    if not has_schemas:
        return NO_FRAME
    return forms.once(
        "key", lambda: frame_of(text_of(key_schema(forms.schema, forms.forms, topic=topic)))
    )


def frame_of(schema_text: str) -> Frame:
    return f'{{"schema":{schema_text},"payload":'.encode(), b"}"


DELETED, OPERATION, TIME_MS, TIME_US = "__deleted", "__op", "__source_ts_ms", "__source_ts_us"
ADDED = {DELETED: pa.string(), OPERATION: pa.string(), TIME_MS: pa.int64(), TIME_US: pa.int64()}


class FlatJson:
    """The format `flat-json`. A delete is written as the known values of the row with `__deleted`
    true, then a tombstone."""

    def __init__(self, wire: WireSettings, *, topic: str) -> None:
        self._wire, self._topic = wire, topic
        self._forms: RowConverters | None = None

    def encode(self, changes: TableChanges, *, now_us: int) -> Encoded:
        forms = self._forms_of(changes.schema)
        texts = forms.to_json(changes.rows)
        names = [*changes.schema.names, *ADDED]
        parts = object_parts(names, [*texts.values(), *map(json_text, metadata_columns(changes))])
        opening, closing = self._value_frame(forms)
        values = join([opening, *parts, closing], len(changes), kind=pa.binary())
        if changes.is_truncate:
            return Encoded(pa.array([TRUNCATE_KEY], pa.binary()), values, None)
        frame = key_frame(forms, topic=self._topic, has_schemas=self._wire.has_schemas)
        keys = encode_keys(forms, texts, len(changes), frame)
        return with_tombstones(keys, values, changes.operations)

    def decode(
        self, keys: pa.BinaryArray, values: pa.BinaryArray, schema: TableSchema
    ) -> TableChanges:
        found = self.scan(RecordField.of(values), schema)
        if found is not None:
            return found
        forms = self._forms_of(schema)
        documents = parse(values, has_schemas=self._wire.has_schemas)
        return _read(columns_of(documents, _kind(forms)), len(documents), forms)

    def scan(self, values: RecordField, schema: TableSchema) -> TableChanges | None:
        if self._wire.has_schemas or not is_ready_for(len(values)):
            return None
        forms = self._forms_of(schema)
        scanner = forms.once("scanner", lambda: scanner_for(_kind(forms)))
        columns = None if scanner is None else scanner.objects(values)
        return None if columns is None else _read(columns, len(values), forms)

    def _forms_of(self, schema: TableSchema) -> RowConverters:
        forms = self._forms  # another thread may replace them meanwhile
        if forms is None or forms.schema != schema:
            refuse_taken_names(schema)
            forms = self._forms = RowConverters.of(schema, self._wire)
        return forms

    def _value_frame(self, forms: RowConverters) -> Frame:
        if not self._wire.has_schemas:
            return NO_FRAME
        return forms.once("value", lambda: frame_of(text_of(flat_schema(forms, self._topic))))


def _kind(forms: RowConverters) -> pa.StructType:
    return carrier(pa.struct([*forms.wire_type, *(pa.field(*field) for field in ADDED.items())]))


def _read(columns: Sequence[pa.Array], row_count: int, forms: RowConverters) -> TableChanges:
    added_columns = dict(zip(ADDED, columns[-len(ADDED) :], strict=True))
    operations = pc.index_in(added_columns[OPERATION], pa.array(OP_CODES[: Operation.TRUNCATE]))
    refuse(
        {
            "`__op` is none of r, c, u and d": operations.is_null(),
            "the time of the commit is missing": added_columns[TIME_US].is_null(),
        }
    )
    rows = forms.from_wire(columns[: -len(ADDED)], row_count, unpack=without_carrier)
    forms.refuse_nulls(rows, pc.equal(operations, int(Operation.DELETE)))
    source = {"ts_us": added_columns[TIME_US]}
    return TableChanges(forms.schema, rows, operations.cast(pa.uint8()), source)


def metadata_columns(changes: TableChanges) -> list[pa.Array]:
    """Returns the columns that follow those of the row."""
    is_deleted = pc.equal(changes.operations, int(Operation.DELETE))
    committed_us = changes.committed_us
    return [
        is_deleted.cast(pa.string()),
        pa.array(OP_CODES, pa.string()).take(changes.operations),
        pc.divide(committed_us, 1_000),
        committed_us,
    ]


def flat_schema(forms: RowConverters, topic: str) -> dict[str, Any]:
    fields = [*row_fields(forms.schema, forms.forms), *added_fields()]
    return struct(fields, is_optional=False, name=f"{topic}.Value")


def added_fields() -> list[dict[str, Any]]:
    return [
        plain("string" if kind == pa.string() else "int64", name, is_optional=True)
        for name, kind in ADDED.items()
    ]


def refuse_taken_names(schema: TableSchema) -> None:
    taken = sorted(set(ADDED) & set(schema.names))
    if taken:
        raise ConfigError(
            "the column names are reserved in flat rows",
            table=str(schema.table),
            columns=taken,
            hint="choose `value: debezium-json`, or drop the columns",
        )
