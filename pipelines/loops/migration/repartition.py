"""Divides a part of a former topic into batches for the partitions of the next one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.partitioner import partitions_of
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.codec import OPERATION_HEADER, SCHEMA_HEADER, TRUNCATE_KEY
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.loops.deliver.decoder import truncate_of
from headwater.pipelines.loops.migration.recode import RecodedRecords, Recoder

TRUNCATE = pa.scalar(TRUNCATE_KEY, pa.binary())


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
