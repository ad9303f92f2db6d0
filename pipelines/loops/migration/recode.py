"""Converts records of one topic for the next: unchanged, or masked and encoded again; and divides
them into batches for its partitions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.partitioner import partitions_of
from headwater.core_log.records.record_headers import encode_header_columns, header_column
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.codec import (
    AT_HEADER,
    OPERATION_HEADER,
    SCHEMA_HEADER,
    TRUNCATE_KEY,
    RowCodec,
    codec_for,
)
from headwater.core_log.rows.settings import WireSettings
from headwater.core_log.rows.source_block_reader import blocks_of
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.loops.deliver.decoder import truncate_of

FORMATS_WITH_BARE_KEYS = {"debezium-json", "flat-json"}
TRUNCATE = pa.scalar(TRUNCATE_KEY, pa.binary())


class RecodedRecords(NamedTuple):
    """Records without an offset yet."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    timestamps_ms: npt.NDArray[np.int64]
    headers: pa.BinaryArray


class RecordMasker(Protocol):
    """The pipeline's steps before the log."""

    def schema(self, schema: TableSchema) -> TableSchema: ...
    def apply(self, changes: TableChanges) -> TableChanges: ...


class Recoder:
    """Recodes each schema of the former topic under today's rules.

    A record keeps its append time, the source position in its headers, and its schema number.
    """

    def __init__(
        self,
        former: str,
        topic: str,
        wire: WireSettings,
        masks: RecordMasker,
        *,
        key: Sequence[str] | None = None,
    ) -> None:
        """`key`: another key than the former topic's; then every record must be a row."""
        self._former, self._topic, self._wire, self._masks = former, topic, wire, masks
        self._key = None if key is None else tuple(key)
        self._reading: dict[int, RowCodec] = {}
        self._writing = codec_for(wire, topic=topic)
        self._rekeyed: dict[int, TableSchema] = {}

    def has_key(self, stored: StoredSchema) -> bool:
        """Returns whether rows of that time have all columns of the key."""
        return set(self._key or ()) <= set(stored.schema.names)

    def schema(self, stored: StoredSchema) -> StoredSchema:
        """Returns the schema in the next topic, under the same number."""
        schema = self._masks.schema(self._under_key(stored))
        return replace(stored, topic=self._topic, schema=schema, wire=self._wire)

    def rekey(self, columns: RecordColumns, stored: StoredSchema) -> TableChanges:
        """Returns rows in their new form with their new keys; every record is a row."""
        changes = self._codec(stored).decode(columns.keys, columns.values, stored.schema)
        return self._masks.apply(replace(changes, schema=self._under_key(stored), before=None))

    def keeps_keys(self, stored: StoredSchema) -> bool:
        """Returns whether the bytes of keys stay the same: the format has neither schemas nor
        registry ids in them, the columns are the same, and none was masked."""
        if self._key is not None and self._key != stored.schema.key:
            return False
        wires = [
            each.model_dump(exclude={"value", "registry"}) for each in (stored.wire, self._wire)
        ]
        after = self._masks.schema(stored.schema)
        return (
            {stored.wire.value, self._wire.value} <= FORMATS_WITH_BARE_KEYS
            and wires[0] == wires[1]
            and not self._wire.has_schemas
            and all(after.column(name) == stored.schema.column(name) for name in after.key)
        )

    def recode(
        self, columns: RecordColumns, stored: StoredSchema, *, now_us: int
    ) -> RecodedRecords:
        """Recodes records of one schema, without truncates."""
        if self._is_same(stored):
            return RecodedRecords(
                columns.keys, columns.values, columns.timestamps_ms, columns.headers
            )
        is_event = np.asarray(columns.values.is_valid())
        places = np.flatnonzero(is_event)
        values = columns.values.take(pa.array(places))
        codec = self._codec(stored)
        changes = codec.decode(columns.keys.take(pa.array(places)), values, stored.schema)
        if self._key is not None:  # the row before an update may have had another new key
            changes = replace(changes, schema=self._under_key(stored), before=None)
        keys, made, origins = [], [], []
        for start, end, (source, transaction) in blocks_of(
            values, stored.wire, changes.committed_us, topic=self._former
        ):
            part = changes.slice(start, end - start)
            part = self._masks.apply(replace(part, source=source, transaction=transaction))
            encoded = self._writing.encode(part, now_us=now_us)
            rows = np.arange(end - start)
            if encoded.changes is not None:
                rows = encoded.changes.to_numpy()
            keys.append(encoded.keys)
            made.append(encoded.values)
            origins.append(places[rows + start])
        if self.keeps_keys(stored):
            alone = _tombstones_alone(columns, is_event, changes, places)
            keys.append(columns.keys.take(pa.array(alone)))
            made.append(pa.nulls(len(alone), pa.binary()))
            origins.append(alone)
        return self._in_order(columns, stored, keys, made, origins)

    def truncate(
        self, columns: RecordColumns, changes: TableChanges, stored: StoredSchema
    ) -> RecodedRecords:
        """Recodes one truncate marker, decoded as `changes`."""
        if self._is_same(stored):
            return RecodedRecords(
                columns.keys, columns.values, columns.timestamps_ms, columns.headers
            )
        [(_, _, (source, transaction))] = blocks_of(
            columns.values, stored.wire, changes.committed_us, topic=self._former
        )
        masked = self._masks.apply(replace(changes, source=source, transaction=transaction))
        encoded = self._writing.encode(masked, now_us=int(columns.timestamps_ms[0]) * 1_000)
        headers = self._headers(columns, stored)
        return RecodedRecords(encoded.keys, encoded.values, columns.timestamps_ms, headers)

    def _is_same(self, stored: StoredSchema) -> bool:
        return (
            stored.wire == self._wire
            and self.keeps_keys(stored)
            and self._masks.schema(stored.schema) == stored.schema
        )

    def _in_order(
        self,
        columns: RecordColumns,
        stored: StoredSchema,
        keys: list[pa.BinaryArray],
        values: list[pa.BinaryArray],
        origins: list[npt.NDArray[np.int64]],
    ) -> RecodedRecords:
        nothing = pa.array([], pa.binary())
        rows = np.concatenate([np.zeros(0, np.int64), *origins])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        headers = columns.headers if self.keeps_keys(stored) else self._headers(columns, stored)
        return RecodedRecords(
            pa.concat_arrays([nothing, *keys]).take(pa.array(order)),
            pa.concat_arrays([nothing, *values]).take(pa.array(order)),
            columns.timestamps_ms[rows],
            headers.take(pa.array(rows)),
        )

    def _headers(self, columns: RecordColumns, stored: StoredSchema) -> pa.BinaryArray:
        """Returns the headers without those of a former key."""
        at = header_column(columns.headers, AT_HEADER).fill_null(b"")
        return encode_header_columns(
            {SCHEMA_HEADER: str(stored.id).encode(), AT_HEADER: at},
            len(columns),
            where_valid={OPERATION_HEADER: header_column(columns.headers, OPERATION_HEADER)},
        )

    def _under_key(self, stored: StoredSchema) -> TableSchema:
        if self._key is None:
            return stored.schema
        if stored.id not in self._rekeyed:
            self._rekeyed[stored.id] = replace(stored.schema, key=self._key)
        return self._rekeyed[stored.id]

    def _codec(self, stored: StoredSchema) -> RowCodec:
        if stored.id not in self._reading:
            self._reading[stored.id] = codec_for(stored.wire, topic=self._former)
        return self._reading[stored.id]


def _tombstones_alone(
    columns: RecordColumns,
    is_event: npt.NDArray[np.bool_],
    changes: TableChanges,
    places: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Returns tombstones whose delete compaction has removed; a delete brings its own."""
    is_delete = np.zeros(len(columns), np.bool_)
    is_delete[places] = changes.operations.to_numpy() == Operation.DELETE
    tombstones = np.flatnonzero(~is_event)
    before = np.maximum(tombstones - 1, 0)
    is_same = pc.equal(columns.keys.take(pa.array(tombstones)), columns.keys.take(pa.array(before)))
    follows = np.asarray(is_same.fill_null(False)) & is_delete[before] & (tombstones > 0)
    return tombstones[~follows]


class RecordRun(NamedTuple):
    """Consecutive records of one schema, or a single truncate."""

    columns: RecordColumns
    stored: StoredSchema
    is_truncate: bool


class CopiedRecords(NamedTuple):
    batches: Sequence[tuple[int, Batch]]
    """With their partitions, in the order of their appends."""
    newest_ms: int
    """The newest time of a record of the topic."""


def runs(
    columns: RecordColumns,
    schemas: Mapping[int, StoredSchema],
    *,
    topic: str,
    has_marks: bool = True,
) -> Iterator[RecordRun]:
    """Yields runs; without `has_marks` truncates are left out."""
    if not len(columns):
        return
    ids = header_column(columns.headers, SCHEMA_HEADER)
    if ids.null_count:
        raise DecodeError(
            "a record has no schema, so it was not written by a pipeline",
            hint="write to a pipeline's topics only by the pipeline",
            topic=topic,
        )
    is_mark = np.asarray(pc.equal(columns.keys, TRUNCATE).fill_null(False))
    operations = header_column(columns.headers, OPERATION_HEADER)
    is_mark &= np.asarray(pc.equal(operations, b"truncate").fill_null(False))
    codes = ids.dictionary_encode().indices.to_numpy()
    is_edge = np.append(True, (np.diff(codes) != 0) | is_mark[1:] | is_mark[:-1])
    starts = np.flatnonzero(is_edge).tolist()
    for start, end in zip(starts, [*starts[1:], len(columns)], strict=True):
        if has_marks or not is_mark[start]:
            stored = schemas[int(ids[start].as_py())]
            yield RecordRun(slice_records(columns, start, end), stored, bool(is_mark[start]))


@dataclass(slots=True)
class RepartitionedRecords:
    """Keeps the order of each key, and writes a truncate to every partition."""

    recoder: Recoder
    partitions: int
    compression: int
    turn: int = 0
    """Next partition of records without a key, which rotate."""

    def make(self, found: Sequence[RecordRun], *, newest_ms: int, now_us: int) -> CopiedRecords:
        batches: list[tuple[int, Batch]] = []
        for columns, stored, is_truncate in found:
            if is_truncate:
                changes = truncate_of(TopicPartition(stored.topic, 0), columns, stored)
                made = self.recoder.truncate(columns, changes, stored)
            else:
                made = self.recoder.recode(columns, stored, now_us=now_us)
            if not len(made.keys):
                continue
            times = np.maximum(np.maximum.accumulate(made.timestamps_ms), newest_ms)
            newest_ms = int(times[-1])
            made = made._replace(timestamps_ms=times)
            for number, rows in self._spread(made, is_truncate=is_truncate):
                batches += [(number, each) for each in self._encode(made, rows)]
        return CopiedRecords(batches, newest_ms)

    def _spread(
        self, made: RecodedRecords, *, is_truncate: bool
    ) -> Iterator[tuple[int, pa.Int64Array | None]]:
        """Returns partitions with their records; None stands for all records."""
        if is_truncate:
            yield from ((number, None) for number in range(self.partitions))
        elif self.partitions == 1:
            yield 0, None
        elif made.keys.null_count:
            self.turn += 1
            yield self.turn % self.partitions, None
        else:
            places = partitions_of(made.keys, self.partitions)
            for number in range(self.partitions):
                rows = np.flatnonzero(places == number)
                if len(rows):
                    yield number, pa.array(rows)

    def _encode(self, made: RecodedRecords, rows: pa.Int64Array | None) -> list[Batch]:
        keys, values, times, headers = made
        if rows is not None:
            keys, values, headers = keys.take(rows), values.take(rows), headers.take(rows)
            times = times[rows.to_numpy()]
        return arrow_codec.encode(
            keys, values, timestamps_ms=times, headers=headers, compression=self.compression
        )


def slice_records(columns: RecordColumns, start: int, end: int) -> RecordColumns:
    rows = slice(start, end)
    return RecordColumns(
        columns.offsets[rows],
        columns.timestamps_ms[rows],
        columns.keys[rows],
        columns.values[rows],
        columns.headers[rows],
    )


def pick_records(columns: RecordColumns, offsets: Int64Array) -> RecordColumns:
    """Returns only the records with these ascending offsets."""
    rows = pa.array(np.flatnonzero(np.isin(columns.offsets, offsets, assume_unique=True)))
    return RecordColumns(
        columns.offsets[rows.to_numpy()],
        columns.timestamps_ms[rows.to_numpy()],
        columns.keys.take(rows),
        columns.values.take(rows),
        columns.headers.take(rows),
    )
