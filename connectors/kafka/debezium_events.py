"""Reads Debezium's events as rows, by their own schema or by one that was inferred once."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.kafka.json_rows import (
    DecodedBatches,
    TopicBatch,
    as_line,
    column_types,
    text_of,
    widen,
    without,
)
from headwater.connectors.kafka.settings import KafkaSourceSettings
from headwater.core_log.foundation.errors import DecodeError, RowsRejected
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.schema_text import schema_from_json

TRUNCATED = '"op":"t"'
"""A truncate in Debezium's events, whose JSON has no spaces."""
SAMPLE = 1_000
"""Number of records from which a schema is inferred."""
OPENING = '{"schema":'
PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:')
ROWS = ("after", "before")


@dataclass(frozen=True, slots=True)
class SchemaRun:
    """Records that are read together: of one schema, or a single truncate."""

    indices: npt.NDArray[np.int64]
    is_truncate: bool = False
    problem: str = ""
    """The reason why none of them can be read."""


class DebeziumReader:
    """Reads events by their own schema if they have one, else by one that was inferred once."""

    def __init__(self, settings: KafkaSourceSettings, topic: str, schema_text: str) -> None:
        self._settings = settings
        self.table, self._key = table_of(topic), settings.key
        self._prefix: bytes | None = None
        self._codec = codec_for(settings.wire, topic=topic)
        self._framed_codec = codec_for(settings.framed_wire, topic=topic)
        self.schema: TableSchema | None = None
        if schema_text:
            self.schema = schema_from_json(json.loads(schema_text))[0]
            self._key = self.schema.key

    def schema_text(self) -> str:
        """Returns the inferred schema; empty if every record has its own."""
        if self.schema is None or self._prefix is not None:
            return ""
        return text_of(self.schema, self._settings.wire)

    def decode(self, columns: RecordColumns, *, partition: int) -> DecodedBatches:
        self._key = self._key or key_columns(columns.keys)
        values = columns.values
        batches: list[TopicBatch] = []
        rejected: dict[int, str] = {}
        indices = pc.indices_nonzero(values.is_valid()).to_numpy().astype(np.int64)
        for run in self._runs(_at(values, indices), indices):
            decoded = self._decode_run(columns, run)
            batches += decoded.batches
            rejected |= decoded.rejected
        return DecodedBatches(batches, rejected)

    def _runs(self, values: pa.BinaryArray, indices: npt.NDArray[np.int64]) -> Iterator[SchemaRun]:
        """Yields runs of records that are read together: of one schema, or a truncate."""
        start = 0
        while start < len(indices):
            try:
                end = start + self._same_schema(values.slice(start))
            except DecodeError as error:
                yield SchemaRun(indices[start : start + 1], problem=error.problem)
                start += 1
                continue
            payloads = self._payloads(values.slice(start, end - start))
            for truncate in np.flatnonzero(np.asarray(_truncates(payloads))) + start:
                if start < truncate:
                    yield SchemaRun(indices[start:truncate])
                yield SchemaRun(indices[truncate : truncate + 1], is_truncate=True)
                start = int(truncate) + 1
            if start < end:
                yield SchemaRun(indices[start:end])
            start = end

    def _payloads(self, values: pa.BinaryArray) -> pa.BinaryArray:
        """Returns the payloads without the schema, which is parsed only once per run."""
        return values if self._prefix is None else pc.binary_slice(values, len(self._prefix), -1)

    def _same_schema(self, values: pa.BinaryArray) -> int:
        """Returns how many of the first values have the schema of the very first, which is
        learnt."""
        first = values[0].as_py()
        if not has_schema(first):
            is_other = pc.starts_with(values, pattern='{"schema":')
            self._prefix = None
        else:
            if self._prefix is None or not first.startswith(self._prefix):
                framed = framed_schema(first, self._key, self.table)
                self._prefix, self.schema = framed.prefix, framed.schema
            is_other = pc.invert(pc.starts_with(values, pattern=self._prefix))
        others = np.flatnonzero(np.asarray(is_other))
        return int(others[0]) if len(others) else len(values)

    def _decode_run(self, columns: RecordColumns, run: "SchemaRun") -> DecodedBatches:
        indices, problem = run.indices, run.problem
        values = self._payloads(_at(columns.values, indices))
        if self.schema is None:
            self.schema = inferred_schema(values[:SAMPLE].to_pylist(), self._key, self.table)
        if self.schema is None and run.is_truncate:
            return DecodedBatches([], {})  # from a table without any row so far
        if self.schema is None or problem:
            reason = problem or "no row shows the columns"
            return DecodedBatches([], dict.fromkeys(indices.tolist(), reason))
        if run.is_truncate:
            return DecodedBatches([_truncate(self.schema, pa.array(indices))], {})
        return self._decode_rows(columns.keys, values, pa.array(indices), self.schema)

    def _decode_rows(
        self,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        indices: pa.Int64Array,
        schema: TableSchema,
    ) -> DecodedBatches:
        """Decodes rows. `values` are those at `places`; `keys` are all keys."""
        try:
            codec = self._codec if self._prefix is None else self._framed_codec
            changes = codec.decode(keys.take(indices), values, schema)
        except RowsRejected as error:
            return self._without_bad(keys, values, indices, error)
        committed = changes.committed_us
        batch = TopicBatch(schema, changes.rows, changes.operations, indices, committed)
        return DecodedBatches([batch], {})

    def _without_bad(
        self,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        indices: pa.Int64Array,
        error: RowsRejected,
    ) -> DecodedBatches:
        """Reads the others again: the first error may not name all bad ones. If new fields without
        a schema are the cause, the table is widened first."""
        if self._prefix is None and self._learn_more(values):
            return self._decode_rows(keys, values, indices, self._find_known())
        bad = {indices[row].as_py(): why for row, why in error.reasons.items()}
        good = without(len(indices), error.reasons)
        if not len(good):
            return DecodedBatches([], bad)
        rest = self._decode_rows(keys, values.take(good), indices.take(good), self._find_known())
        return DecodedBatches(rest.batches, bad | dict(rest.rejected))

    def _find_known(self) -> TableSchema:
        assert self.schema is not None, "rows were read by a schema"
        return self.schema

    def _learn_more(self, values: pa.BinaryArray) -> bool:
        known = self._find_known()
        try:
            found = inferred_schema(values.to_pylist(), self._key, self.table)
        except DecodeError:
            return False
        if found is None:
            return False
        wider = widen(known, {column.name: column.type for column in found.columns})
        self.schema = wider
        return wider != known


def table_of(topic: str) -> TableId:
    """Returns `prefix.schema.table`, Debezium's name of a topic; a topic without dots has the
    table's name."""
    _, _, rest = topic.partition(".")
    namespace, _, name = (rest or topic).rpartition(".")
    return TableId(namespace, name)


def _at(column: pa.BinaryArray, indices: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """Returns the values at those indices; neighbours are sliced without copying."""
    if len(indices) and indices[-1] - indices[0] == len(indices) - 1:
        return column.slice(int(indices[0]), len(indices))
    return column.take(pa.array(indices))


def _truncate(schema: TableSchema, indices: pa.Int64Array) -> TopicBatch:
    rows = pa.RecordBatch.from_pylist([{}], schema=schema.arrow)
    return TopicBatch(schema, rows, pa.array([Operation.TRUNCATE], pa.uint8()), indices)


def _truncates(values: pa.BinaryArray) -> pa.BooleanArray:
    """Finds truncates. The text is searched first, because hardly any value contains one."""
    candidates = pc.match_substring(values, TRUNCATED)
    if not pc.any(candidates).as_py():
        return candidates
    certain = [
        is_candidate and _operation(value) == "t"
        for value, is_candidate in zip(values.to_pylist(), candidates.to_pylist(), strict=True)
    ]
    return pa.array(certain, pa.bool_())


def _operation(value: bytes) -> object:
    try:
        event = orjson.loads(value)
        return event.get("payload", event).get("op")
    except (orjson.JSONDecodeError, AttributeError):
        return None


class FramedSchema(NamedTuple):
    """The common prefix of all records of one schema up to their payload; a brace follows it."""

    prefix: bytes
    schema: TableSchema


def has_schema(value: bytes) -> bool:
    return value.startswith(OPENING.encode())


def framed_schema(value: bytes, key: tuple[str, ...], table: TableId) -> FramedSchema:
    try:
        text = value.decode()
        document, end = json.JSONDecoder().raw_decode(text, len(OPENING))
        payload = PAYLOAD.match(text, end)
        if payload is None:
            raise ValueError("the payload does not follow the schema")
        row = next(each for each in document["fields"] if each.get("field") == "after")
        columns = columns_of(row["fields"])
    except (ValueError, KeyError, TypeError, StopIteration, UnicodeDecodeError):
        raise DecodeError("a value's schema is not one of Debezium's envelope") from None
    known = {column.name for column in columns}
    schema = TableSchema(table, columns, tuple(name for name in key if name in known))
    return FramedSchema(text[: payload.end()].encode(), schema)


def inferred_schema(
    values: Iterable[bytes], key: tuple[str, ...], table: TableId
) -> TableSchema | None:
    """Returns the common schema of these events' rows; None if there is no row among them."""
    rows = [line for value in values for row in _rows_of(value) if (line := as_line(row))]
    if not rows:
        return None
    kinds = column_types(rows)
    columns = tuple(Column(name, kind, is_nullable=name not in key) for name, kind in kinds.items())
    return TableSchema(table, columns, tuple(name for name in key if name in kinds))


def _rows_of(value: bytes) -> list[Mapping[str, Any]]:
    try:
        event = orjson.loads(value)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(event, dict):
        return []
    return [event[name] for name in ROWS if isinstance(event.get(name), dict)]


def key_columns(keys: pa.BinaryArray) -> tuple[str, ...]:
    """Returns the fields of the first key, with or without its own schema."""
    for key in keys.drop_null()[:1].to_pylist():
        try:
            document = orjson.loads(key)
        except orjson.JSONDecodeError:
            return ()
        if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
            document = document["payload"]
        return tuple(document) if isinstance(document, dict) else ()
    return ()


DECIMAL = "org.apache.kafka.connect.data.Decimal"
PRECISION = "connect.decimal.precision"
PRECISION_MAX = 38
PLAIN = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
MEANINGS: Mapping[str, Callable[[Mapping[str, str]], pa.DataType]] = {
    DECIMAL: lambda given: pa.decimal128(
        int(given.get(PRECISION, PRECISION_MAX)), int(given["scale"])
    ),
    "io.debezium.time.Date": lambda _: pa.date32(),
    "io.debezium.time.Time": lambda _: pa.time32("ms"),
    "io.debezium.time.MicroTime": lambda _: pa.time64("us"),
    "io.debezium.time.NanoTime": lambda _: pa.time64("ns"),
    "io.debezium.time.Timestamp": lambda _: pa.timestamp("ms"),
    "io.debezium.time.MicroTimestamp": lambda _: pa.timestamp("us"),
    "io.debezium.time.NanoTimestamp": lambda _: pa.timestamp("ns"),
    "io.debezium.time.ZonedTimestamp": lambda _: pa.timestamp("us", "UTC"),
}
"""Names whose meaning one of our types has; others stay with their column as its semantic."""


def columns_of(fields: list[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Returns the columns; raises `DecodeError` for types that no column can have."""
    return tuple(_column(field) for field in fields)


def _column(field: Mapping[str, Any]) -> Column:
    name, meaning = str(field["field"]), str(field.get("name") or "")
    parameters = {str(key): str(value) for key, value in (field.get("parameters") or {}).items()}
    kind = _type(field)
    is_carried = meaning in MEANINGS
    return Column(
        name,
        kind,
        is_nullable=bool(field.get("optional", False)),
        semantic="" if is_carried else meaning,
        parameters={} if is_carried else parameters,
    )


def _type(schema: Mapping[str, Any]) -> pa.DataType:
    meaning, kind = str(schema.get("name") or ""), schema.get("type")
    if meaning in MEANINGS:
        try:
            return MEANINGS[meaning](schema.get("parameters") or {})
        except (KeyError, ValueError) as error:
            raise DecodeError("a schema lacks parameters of its name", name=meaning) from error
    if kind == "array":
        return pa.list_(_type(schema["items"]))
    if kind == "struct":
        return pa.struct([pa.field(each["field"], _type(each)) for each in schema["fields"]])
    if kind not in PLAIN:
        raise DecodeError("a column of this type cannot be read from Connect's schema", type=kind)
    return PLAIN[kind]
