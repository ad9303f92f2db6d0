"""Reads Debezium's events as rows, by their own schema or by one that was inferred once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.kafka.debezium_schemas import (
    framed_schema,
    has_schema,
    inferred_schema,
    key_columns,
)
from headwater.connectors.kafka.json_rows import DecodedBatches, TopicBatch, text_of, widen, without
from headwater.connectors.kafka.settings import KafkaSourceSettings
from headwater.core_log.foundation.errors import DecodeError, RowsRejected
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.schema_text import schema_from_json

TRUNCATED = '"op":"t"'
"""A truncate in Debezium's events, whose JSON has no spaces."""
SAMPLE = 1_000
"""Number of records from which a schema is inferred."""


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
            reason = problem or "there is no row to learn the columns from"
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
