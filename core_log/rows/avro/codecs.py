"""The value formats `debezium-avro` and `flat-avro`, in Confluent's frame against a registry."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import ConfigError, DecodeError
from headwater.core_log.model.changes import (
    OP_CODES,
    ColumnOrValue,
    Operation,
    TableChanges,
    concat_changes,
)
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.rows.avro.reader import AvroReader, fit
from headwater.core_log.rows.avro.schema_registry import (
    SchemaRegistry,
    avro_schema,
    frame,
    legal_names,
    read_framed,
)
from headwater.core_log.rows.avro.writer import (
    FIRST_BRANCH,
    NOTHING,
    SECOND_BRANCH,
    AvroPart,
    constant,
    encoded_parts,
    join,
    spread,
    value_parts,
    zeros_where_null,
)
from headwater.core_log.rows.codec import TRUNCATE_KEY, Encoded, key_values, with_tombstones
from headwater.core_log.rows.connect_schema import (
    FLAG,
    NUMBER,
    SMALL_NUMBER,
    envelope_schema,
    key_schema,
    source_schema,
    source_shape,
    transaction_schema,
)
from headwater.core_log.rows.converters.row import RowConverters, refuse
from headwater.core_log.rows.json.flat_codec import (
    ADDED,
    OPERATION,
    TIME_US,
    flat_schema,
    metadata_columns,
    refuse_taken_names,
)
from headwater.core_log.rows.settings import WireSettings

OPERATIONS = pa.array(OP_CODES[: Operation.TRUNCATE], pa.string())
DecodedPart = tuple[Int64Array, TableChanges]
"""Indices of records, and their content."""
KINDS = {NUMBER: pa.int64(), FLAG: pa.bool_(), SMALL_NUMBER: pa.int32()}
ONE_LETTER = b"\x02"


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
        return key_schema(forms.schema, forms.forms, topic=self.topic)

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
        shape = source_shape(changes.source)
        opening = self._topic.frame(
            "value", forms, lambda: self._schema(forms, changes.source), shape
        )
        columns = forms.to_wire(changes.rows)
        row = [] if changes.is_truncate else encoded_parts(changes.schema, columns)
        before = _before(changes, forms)
        parts = [opening, *_envelope_parts(changes, row, before, now_us=now_us)]
        values = join(parts, len(changes))
        if changes.is_truncate:
            return Encoded(pa.array([TRUNCATE_KEY], pa.binary()), values, None)
        return with_tombstones(self._topic.encode_keys(forms, columns), values, changes.operations)

    def _schema(self, forms: RowConverters, source: Mapping[str, ColumnOrValue]) -> dict[str, Any]:
        return envelope_schema(forms.schema, forms.forms, source, topic=self._topic.topic)

    def decode(
        self, keys: pa.BinaryArray, values: pa.BinaryArray, schema: TableSchema
    ) -> TableChanges:
        forms = self._topic.forms_of(schema)
        parts = [(rows, _read_events(events, forms)) for rows, events in self._topic.read(values)]
        return _in_order(parts, forms)

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
        parts = [(rows, _read_flat(found, forms)) for rows, found in self._topic.read(values)]
        return _in_order(parts, forms)

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


def _read_events(events: pa.StructArray, forms: RowConverters) -> TableChanges:
    fields = _members(events, needed=("before", "after", "source", "op"))
    source = _members(fields["source"], needed=())
    operations = pc.index_in(fields["op"], OPERATIONS).cast(pa.uint8())
    is_deleted = pc.equal(operations, int(Operation.DELETE))
    row = pc.if_else(is_deleted, fields["before"], fields["after"])
    committed_us = source.get("ts_us", pa.nulls(len(events), pa.int64()))
    if "ts_ms" in source:
        committed_us = pc.coalesce(committed_us, pc.multiply(source["ts_ms"], 1_000))
    refuse(
        {
            "`op` is none of r, c, u and d": operations.is_null(),
            "the row is missing": row.is_null(),
            "the time of the commit is missing": committed_us.is_null(),
        }
    )
    rows = _rows(row, forms)
    forms.refuse_nulls(rows, is_deleted)
    images = pc.if_else(is_deleted, pa.scalar(None, row.type), fields["before"])
    return TableChanges(
        forms.schema, rows, operations, {"ts_us": committed_us}, before=_images(images, forms)
    )


def _read_flat(found: pa.StructArray, forms: RowConverters) -> TableChanges:
    fields = _members(found, needed=tuple(ADDED))
    operations = pc.index_in(fields[OPERATION], OPERATIONS).cast(pa.uint8())
    refuse(
        {
            "`__op` is none of r, c, u and d": operations.is_null(),
            "the time of the commit is missing": fields[TIME_US].is_null(),
        }
    )
    rows = _rows(found, forms, may_have=tuple(ADDED))
    forms.refuse_nulls(rows, pc.equal(operations, int(Operation.DELETE)))
    return TableChanges(forms.schema, rows, operations, {"ts_us": fields[TIME_US]})


def _in_order(parts: Sequence[DecodedPart], forms: RowConverters) -> TableChanges:
    """Merges the parts of each schema into the order of the records; most topics have one part."""
    if not parts:
        nothing = pa.RecordBatch.from_pylist([], schema=forms.schema.arrow)
        times = {"ts_us": pa.array([], pa.int64())}
        return TableChanges(forms.schema, nothing, pa.array([], pa.uint8()), times)
    if len(parts) == 1:
        return parts[0][1]
    order = pa.array(np.argsort(np.concatenate([indices for indices, _ in parts])))
    return concat_changes([each for _, each in parts]).take(order)


def _members(column: pa.Array, *, needed: Sequence[str]) -> dict[str, pa.Array]:
    if not pa.types.is_struct(column.type):
        raise DecodeError("the schema of these records is not an event's")
    found = {each.name: part for each, part in zip(column.type, column.flatten(), strict=True)}
    if missing := [name for name in needed if name not in found]:
        raise DecodeError("the schema of these records lacks fields", fields=missing)
    return found


def _row_columns(
    rows: pa.StructArray, names: Sequence[str], *, may_have: Sequence[str] = ()
) -> list[pa.Array]:
    """Returns the columns by their legal names; raises if the writer had other columns."""
    legal = legal_names(names)
    found = {field.name: column for field, column in zip(rows.type, rows.flatten(), strict=True)}
    missing, extra = set(legal) - found.keys(), found.keys() - {*legal, *may_have}
    if missing or extra:
        raise DecodeError(
            "the schema of these records has other columns than their table",
            missing=sorted(missing),
            extra=sorted(extra),
        )
    return [found[name] for name in legal]


def _rows(
    found: pa.StructArray, forms: RowConverters, *, may_have: Sequence[str] = ()
) -> pa.RecordBatch:
    columns = _row_columns(found, forms.schema.names, may_have=may_have)
    return forms.from_wire(columns, len(found), unpack=fit)


def _images(images: pa.StructArray, forms: RowConverters) -> pa.StructArray | None:
    is_there = images.is_valid()
    if not pc.any(is_there).as_py():
        return None
    rows = _rows(images.filter(is_there), forms)
    return spread(rows.to_struct_array(), is_there)


def _envelope_parts(
    changes: TableChanges, row: Sequence[AvroPart], before: pa.Array | None, *, now_us: int
) -> list[AvroPart]:
    """Returns the envelope's parts. `before` holds encoded rows before updates, null if there is
    none."""
    return [
        *_image_parts(changes, row, before),
        *_block_parts(changes.source, source_schema(changes.source)),
        *_transaction_parts(changes.transaction),
        ONE_LETTER,
        pa.array(OP_CODES, pa.string()).cast(pa.binary()).take(changes.operations),
        *(constant(pa.int64(), time, is_optional=True)
          for time in (now_us // 1_000, now_us, now_us * 1_000)),
    ]  # fmt: skip


def _image_parts(
    changes: TableChanges, row: Sequence[AvroPart], before: pa.Array | None
) -> list[AvroPart]:
    if changes.is_truncate:
        return [FIRST_BRANCH * 2]
    operations = changes.operations
    if before is None and len(pc.unique(operations)) == 1:
        if operations[0].as_py() == Operation.DELETE:
            return [SECOND_BRANCH, *row, FIRST_BRANCH]
        return [FIRST_BRANCH + SECOND_BRANCH, *row]
    none, some = (pa.scalar(each, pa.binary()) for each in (FIRST_BRANCH, SECOND_BRANCH))
    nothing = pa.scalar(b"", pa.binary())
    is_deleted = pc.equal(operations, int(Operation.DELETE))
    opening: Any = none
    if before is not None:
        known = pc.binary_join_element_wise(some, before.fill_null(b""), NOTHING)
        opening = pc.if_else(before.is_valid(), known, none)
    opening = pc.if_else(is_deleted, nothing, opening)
    return [opening, SECOND_BRANCH, *row, pc.if_else(is_deleted, none, nothing)]


def _block_parts(block: Mapping[str, ColumnOrValue], schema: Mapping[str, Any]) -> list[AvroPart]:
    parts: list[AvroPart] = []
    for (_, value), field in zip(block.items(), schema["fields"], strict=True):
        kind = KINDS.get(field["type"], pa.string())
        if "default" in field:  # its own type is the union's first branch then
            parts += _write_default(value, kind)
        elif isinstance(value, pa.Array):
            parts += value_parts(value.cast(kind), is_optional=field["optional"])
        else:
            parts.append(constant(kind, value, is_optional=field["optional"]))
    return parts


def _write_default(value: ColumnOrValue, kind: pa.DataType) -> list[AvroPart]:
    if value is None:
        return [SECOND_BRANCH]
    if not isinstance(value, pa.Array):
        return [FIRST_BRANCH, constant(kind, value, is_optional=False)]
    return [FIRST_BRANCH, *value_parts(value.cast(kind).fill_null("false"), is_optional=False)]


def _transaction_parts(block: Mapping[str, ColumnOrValue] | None) -> list[AvroPart]:
    if block is None:
        return [FIRST_BRANCH]
    schema = transaction_schema()
    ordered = {field["field"]: block[field["field"]] for field in schema["fields"]}
    return [SECOND_BRANCH, *_block_parts(ordered, schema)]
