"""Reads a slice of the log back into changes: fetched, decoded by schema, transformed, routed."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from core_log import records
from core_log.changes import Operation, TableChanges
from core_log.errors import DecodeError, PositionLost, RecordsRejected, RowsRejected
from core_log.log import Bounds, FetchLimit, Isolation, Log, TopicPartition
from core_log.record_headers import header_column
from core_log.records import Columns
from core_log.rows.codec import OPERATION_HEADER, SCHEMA_HEADER, TRUNCATE_KEY, RowCodec
from core_log.rows.codecs import codec_for
from core_log.table_schema import TableId
from pipelines.internal_topics import COMMITS
from pipelines.schemas import SchemaReader, StoredSchema
from pipelines.truncates import Barrier, Range, find_barriers
from sinks.sink import Slice

Mask = npt.NDArray[np.bool_]

Skipped = Mapping[TopicPartition, set[int]]
"""Offsets of records that went to the dead-letter topic."""


class AfterLog(Protocol):
    """What a pipeline does to changes on their way out: filters, added columns, table routes."""

    def apply(self, changes: TableChanges, *, may_have_gaps: bool) -> list[TableChanges]: ...


@dataclass(slots=True)
class Count:
    """What the last slice brought of one table of the source."""

    topic: str
    rows: int = 0
    bytes: int = 0
    committed_ms: int = 0


class SliceReader:
    """Decodes what slices cover, one fetch after the other, so that memory does not grow with the
    slice."""

    def __init__(
        self, log: Log, *, after_log: AfterLog, fetch_bytes: int, skipped: Callable[[], Skipped]
    ) -> None:
        self._log, self._after_log, self._skipped = log, after_log, skipped
        self._limit = FetchLimit(bytes_max=fetch_bytes)
        self._schemas = SchemaReader(log)
        self._codecs: dict[tuple[str, int], RowCodec] = {}
        self.counts: dict[TableId, Count] = {}
        """By table of the source, of the slice that was read last."""
        self.feeds: dict[TableId, set[str]] = {}
        """Which topics have gone into each table of the target."""

    async def read(self, part: Slice) -> AsyncIterator[TableChanges]:
        """Every change of the slice once. Within a partition in the order of its offsets; a
        truncate once for all partitions, after what was before it in any of them."""
        ends = {
            partition: stand.next_offset
            for partition, stand in part.end.items()
            if partition.topic != COMMITS
        }
        self.counts = {}
        before = await self._log.bounds(ends)
        reached = {
            partition: max(part.start[partition].next_offset, before[partition].start)
            for partition in ends
        }
        for barrier in await self._barriers(part, reached, ends):
            async for changes in self._read_to(barrier, reached, before):
                yield changes
            # One marker stands for all, and comes before whatever follows any of them.
            [(first, offset), *others] = barrier.items()
            async for changes in self._read_to({first: offset + 1}, reached, before):
                yield changes
            reached |= {partition: offset + 1 for partition, offset in others}
        async for changes in self._read_to(ends, reached, before):
            yield changes
        await self._check_no_delete_was_missed(part, before)

    async def _barriers(
        self, part: Slice, reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> list[Barrier]:
        found: list[Barrier] = []
        for topic in sorted(part.truncated):
            ranges = {
                partition: Range(reached[partition], end)
                for partition, end in ends.items()
                if partition.topic == topic
            }
            if len(ranges) > 1:
                found += await find_barriers(self._log, ranges)
        return found

    async def _read_to(
        self,
        ends: Mapping[TopicPartition, int],
        reached: dict[TopicPartition, int],
        before: Mapping[TopicPartition, Bounds],
    ) -> AsyncIterator[TableChanges]:
        """Moves `reached` on to `ends`."""
        while wanted := {part: reached[part] for part in ends if reached[part] < ends[part]}:
            fetched = await self._log.fetch(
                wanted, limit=self._limit, isolation=Isolation.COMMITTED
            )
            if not fetched:
                reached |= await self._beyond_compacted(wanted, ends)
            for each in fetched:
                partition, end = each.partition, ends[each.partition]
                columns = records.decode(each.data, from_offset=wanted[partition])
                reached[partition] = min(each.next_offset, end)
                below = int(np.searchsorted(columns.offsets, end))
                for changes in await self._decode(partition, _sliced(columns, 0, below)):
                    cleaned_to = before[partition].cleaned_to
                    for routed in self._route(changes, partition, cleaned_to=cleaned_to):
                        yield routed

    async def _beyond_compacted(
        self, wanted: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Compaction can have removed all that was left before an end that is long decided."""
        bounds = await self._log.bounds(wanted)
        return {
            part: ends[part] if bounds[part].stable >= ends[part] else at
            for part, at in wanted.items()
        }

    async def _check_no_delete_was_missed(
        self, part: Slice, before: Mapping[TopicPartition, Bounds]
    ) -> None:
        """While we read, tombstones may have aged out that we had not come to yet."""
        after = await self._log.bounds(before)
        for partition, bounds in after.items():
            dropped_to = bounds.deletes_dropped_to
            if dropped_to > max(
                before[partition].deletes_dropped_to, part.start[partition].next_offset
            ):
                raise PositionLost(
                    "deletes aged out of the log while they were being read",
                    hint="raise log.delete_retention, then rebuild the table",
                    topic=partition.topic,
                    partition=partition.partition,
                    deletes_dropped_to=dropped_to,
                )

    async def _decode(self, partition: TopicPartition, columns: Columns) -> list[TableChanges]:
        skipped = self._skipped().get(partition)
        if skipped:
            columns = _chosen(columns, ~np.isin(columns.offsets, list(skipped)))
        if not len(columns):
            return []
        decoded: list[TableChanges] = []
        ids = header_column(columns.headers, SCHEMA_HEADER)
        for first, end in _runs(ids):
            schema_id = ids[first].as_py()
            if schema_id is None:
                raise DecodeError(
                    "a record has no schema, so it was not written by a pipeline",
                    hint="only pipelines may write to their topics",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=int(columns.offsets[first]),
                )
            stored = await self._schemas.find(partition.topic, int(schema_id))
            for stretch in _between_truncates(_sliced(columns, first, end)):
                changes = self._decode_stretch(partition, stretch, stored)
                if changes is not None:
                    self._count(changes, stretch)
                    decoded.append(changes)
        return decoded

    def _route(
        self, changes: TableChanges, partition: TopicPartition, *, cleaned_to: int
    ) -> list[TableChanges]:
        assert changes.log_offsets is not None, "what was read from the log knows its place"
        may_have_gaps = changes.log_offsets[0].as_py() < cleaned_to
        routed = self._after_log.apply(changes, may_have_gaps=may_have_gaps)
        for each in routed:
            self.feeds.setdefault(each.schema.table, set()).add(partition.topic)
        return routed

    def _count(self, changes: TableChanges, columns: Columns) -> None:
        assert changes.log_partition is not None, "what was read from the log knows its place"
        count = self.counts.setdefault(changes.schema.table, Count(changes.log_partition.topic))
        count.rows += len(changes)
        count.bytes += columns.values.nbytes
        count.committed_ms = changes.committed_us[len(changes) - 1].as_py() // 1_000

    def _decode_stretch(
        self, partition: TopicPartition, columns: Columns, stored: StoredSchema
    ) -> TableChanges | None:
        if header_column(columns.headers[:1], OPERATION_HEADER)[0].as_py() == b"truncate":
            return _truncate(partition, columns, stored)
        if columns.values.null_count:
            columns = _chosen(columns, np.asarray(columns.values.is_valid()))
        if not len(columns):
            return None
        codec = self._codec(partition.topic, stored)
        try:
            changes = codec.decode(columns.keys, columns.values, stored.schema)
        except RowsRejected as error:
            raise RecordsRejected(
                "records do not hold what their schema says",
                topic=partition.topic,
                partition=partition.partition,
                reasons={int(columns.offsets[row]): why for row, why in error.reasons.items()},
            ) from error
        return replace(
            changes, log_partition=partition, log_offsets=pa.array(columns.offsets, pa.int64())
        )

    def _codec(self, topic: str, stored: StoredSchema) -> RowCodec:
        found = self._codecs.get((topic, stored.id))
        if found is None:
            found = self._codecs[topic, stored.id] = codec_for(stored.wire, topic=topic)
        return found


def _runs(ids: pa.BinaryArray) -> Iterator[tuple[int, int]]:
    """Stretches of records under one schema."""
    codes = np.asarray(ids.dictionary_encode(null_encoding="encode").indices)
    ends = np.append(np.flatnonzero(np.diff(codes)) + 1, len(codes))
    start = 0
    for end in ends.tolist():
        yield start, end
        start = end


def _between_truncates(columns: Columns) -> Iterator[Columns]:
    """A truncate marker stands alone; what lies between two of them stays together."""
    marks = pc.equal(columns.keys, pa.scalar(TRUNCATE_KEY, pa.binary())).fill_null(False)
    start = 0
    for at in np.flatnonzero(np.asarray(marks)).tolist():
        if start < at:
            yield _sliced(columns, start, at)
        yield _sliced(columns, at, at + 1)
        start = at + 1
    if start < len(columns):
        yield _sliced(columns, start, len(columns))


def _truncate(partition: TopicPartition, columns: Columns, stored: StoredSchema) -> TableChanges:
    schema = stored.schema.arrow
    nothing = pa.RecordBatch.from_arrays(
        [pa.nulls(1, field.type) for field in schema], schema=schema
    )
    return TableChanges(
        schema=stored.schema,
        rows=nothing,
        operations=pa.array([Operation.TRUNCATE], pa.uint8()),
        source={"ts_us": int(columns.timestamps_ms[0]) * 1_000},
        log_partition=partition,
        log_offsets=pa.array(columns.offsets, pa.int64()),
    )


def _sliced(columns: Columns, start: int, end: int) -> Columns:
    rows = slice(start, end)
    return Columns(
        columns.offsets[rows],
        columns.timestamps_ms[rows],
        columns.keys[rows],
        columns.values[rows],
        columns.headers[rows],
    )


def _chosen(columns: Columns, mask: Mask) -> Columns:
    chosen = pa.array(mask)
    return Columns(
        columns.offsets[mask],
        columns.timestamps_ms[mask],
        columns.keys.filter(chosen),
        columns.values.filter(chosen),
        columns.headers.filter(chosen),
    )
