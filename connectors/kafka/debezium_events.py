"""Debezium's events as rows: read by the schema beside them, or by one that was inferred once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connectors.kafka.debezium_schemas import (
    framed_schema,
    has_schema,
    inferred_schema,
    key_columns,
)
from connectors.kafka.json_rows import widened
from connectors.kafka.portions import Decoded, Portion, text_of, without
from connectors.kafka.settings import KafkaSourceSettings
from core_log.changes import Operation
from core_log.errors import DecodeError, RowsRejected
from core_log.records import Columns
from core_log.rows.codec import RowCodec
from core_log.rows.codecs import codec_for
from core_log.rows.schema_text import schema_from_json
from core_log.table_schema import TableId, TableSchema

TRUNCATED = '"op":"t"'
"""In Debezium's events, whose members come without spaces between them."""
SAMPLE = 1_000
"""Records that are looked at to infer a schema."""


@dataclass(frozen=True, slots=True)
class Run:
    """Records that are read together: of one schema, or a truncate alone."""

    places: pa.Int64Array
    is_truncate: bool
    problem: str
    """Why none of them can be read; mostly empty."""


class DebeziumReader:
    """Events by their own schema where they carry one, else by one that was inferred once."""

    def __init__(self, settings: KafkaSourceSettings, topic: str, learnt: str) -> None:
        self._settings, self._topic = settings, topic
        self.table, self._key = table_of(topic), settings.key
        self._prefix: bytes | None = None
        self._codecs: dict[bool, RowCodec] = {}
        self.schema: TableSchema | None = None
        if learnt:
            self.schema = schema_from_json(json.loads(learnt))[0]
            self._key = self.schema.key

    def learnt(self) -> str:
        """Nothing where every record says it itself."""
        if self.schema is None or self._prefix is not None:
            return ""
        return text_of(self.schema, self._settings.wire(has_schemas=False))

    def decode(self, columns: Columns, *, partition: int) -> Decoded:
        self._key = self._key or key_columns(columns.keys)
        values = columns.values
        portions: list[Portion] = []
        rejected: dict[int, str] = {}
        places = pc.indices_nonzero(values.is_valid()).to_numpy().astype(np.int64)
        for run in self._runs(values.take(pa.array(places)), places):
            decoded = self._decode_run(columns, run)
            portions += decoded.portions
            rejected |= decoded.rejected
        return Decoded(portions, rejected)

    def _runs(self, values: pa.BinaryArray, places: npt.NDArray[np.int64]) -> Iterator[Run]:
        """Stretches that are read together: of one schema, and a truncate alone."""
        start = 0
        truncates = set(np.flatnonzero(np.asarray(_truncates(values))).tolist())
        while start < len(places):
            is_alone = start in truncates
            end = min((each for each in truncates if each > start), default=len(places))
            end = start + 1 if is_alone else end
            problem = ""
            try:
                end = start + self._same_schema(values.slice(start, end - start))
            except DecodeError as error:
                end, problem = start + 1, error.problem
            yield Run(pa.array(places[start:end]), is_truncate=is_alone, problem=problem)
            start = end

    def _same_schema(self, values: pa.BinaryArray) -> int:
        """How many of the first values have the schema of the very first, which is learnt."""
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

    def _decode_run(self, columns: Columns, run: "Run") -> Decoded:
        places, problem = run.places, run.problem
        values = columns.values.take(places)
        if self.schema is None:
            self.schema = inferred_schema(values[:SAMPLE].to_pylist(), self._key, self.table)
        if self.schema is None and run.is_truncate:
            return Decoded([], {})  # of a table of which nothing was seen yet
        if self.schema is None or problem:
            reason = problem or "there is no row to learn the columns from"
            return Decoded([], dict.fromkeys(places.to_pylist(), reason))
        if run.is_truncate:
            return Decoded([_truncate(self.schema, places)], {})
        return self._decode_rows(columns, places, self.schema)

    def _decode_rows(self, columns: Columns, places: pa.Int64Array, schema: TableSchema) -> Decoded:
        keys, values = columns.keys.take(places), columns.values.take(places)
        try:
            changes = self._codec(has_schemas=self._prefix is not None).decode(keys, values, schema)
        except RowsRejected as error:
            return self._without_bad(columns, places, error)
        committed = changes.committed_us
        portion = Portion(schema, changes.rows, changes.operations, places, committed)
        return Decoded([portion], {})

    def _codec(self, *, has_schemas: bool) -> RowCodec:
        if has_schemas not in self._codecs:
            wire = self._settings.wire(has_schemas=has_schemas)
            self._codecs[has_schemas] = codec_for(wire, topic=self._topic)
        return self._codecs[has_schemas]

    def _without_bad(self, columns: Columns, places: pa.Int64Array, error: RowsRejected) -> Decoded:
        """The rest once more: what was named may not be all. Where new members are what is wrong,
        and nobody sent a schema, the table is widened first."""
        if self._prefix is None and self._learn_more(columns.values.take(places)):
            return self._decode_rows(columns, places, self._known())
        bad = {places[row].as_py(): why for row, why in error.reasons.items()}
        good = places.take(without(len(places), error.reasons))
        if not len(good):
            return Decoded([], bad)
        rest = self._decode_rows(columns, good, self._known())
        return Decoded(rest.portions, bad | dict(rest.rejected))

    def _known(self) -> TableSchema:
        assert self.schema is not None, "rows were read by a schema"
        return self.schema

    def _learn_more(self, values: pa.BinaryArray) -> bool:
        known = self._known()
        try:
            found = inferred_schema(values.to_pylist(), self._key, self.table)
        except DecodeError:
            return False
        if found is None:
            return False
        wider = widened(known, {column.name: column.type for column in found.columns})
        self.schema = wider
        return wider != known


def table_of(topic: str) -> TableId:
    """`prefix.schema.table` as Debezium names topics; a topic without dots is the table's name."""
    _, _, rest = topic.partition(".")
    namespace, _, name = (rest or topic).rpartition(".")
    return TableId(namespace, name)


def _truncate(schema: TableSchema, places: pa.Int64Array) -> Portion:
    rows = pa.RecordBatch.from_pylist([{}], schema=schema.arrow)
    return Portion(schema, rows, pa.array([Operation.TRUNCATE], pa.uint8()), places)


def _truncates(values: pa.BinaryArray) -> pa.BooleanArray:
    """Looked for in the text first, since hardly any value has it."""
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
