"""Decodes records to changes of tables: read by the schema of the write, under today's columns."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import (
    DecodeError,
    RecordsRejected,
    RowsRejected,
    UnreadableBatch,
)
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Fetched, Log, TopicPartition
from headwater.core_log.records.record_codec import encode_varint
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.records.record_views import (
    NO_NUMBER,
    RecordColumns,
    RecordField,
    RecordScratch,
    RecordViews,
    locate_parts,
)
from headwater.core_log.rows.codec import (
    OPERATION_HEADER,
    REREAD,
    SCHEMA_HEADER,
    TRUNCATE_KEY,
    RowCodec,
    codec_for,
)
from headwater.core_log.rows.json.flat_codec import TIME_US
from headwater.pipelines.journal.schemas import SchemaReader, StoredSchema
from headwater.pipelines.loops.thread_offload import run_in_thread, slices_of

PART_BYTES = 8 << 20
"""Bytes of records that are decompressed and decoded at a time: some compress to a fiftieth."""
TWO_HEADERS = encode_varint(2)[0]
REPLACED = "headwater drop PIPELINE/TABLE --data, and the next run reads the table again"
"""Hint for a table with lost records: the log is their only place."""


@dataclass(frozen=True, slots=True)
class DecodedChanges:
    changes: TableChanges
    bytes: int


DecodeWork = Callable[[], Sequence[DecodedChanges]]


class RecordDecoder:
    """Decodes the records of one fetch at a time.

    It keeps a codec for every schema, and the memory for decompressed records.
    """

    def __init__(
        self, log: Log, *, is_alone: bool = True, schemas: SchemaReader | None = None
    ) -> None:
        """`is_alone`: whether the machine's other cores are free."""
        self._schemas, self._is_alone = schemas or SchemaReader(log), is_alone
        self._codecs: dict[tuple[str, int], RowCodec] = {}
        self._scratch = RecordScratch()

    async def look(self, topics: Iterable[str]) -> None:
        """Uses the present columns of these tables for what is decoded from now on."""
        await self._schemas.look(topics)

    async def decode(
        self, fetched: Fetched, *, from_offset: int, end: int, skipped: Set[int]
    ) -> Sequence[DecodedChanges]:
        """Yields changes from an offset up to `end`, without tombstones; truncates alone.

        Raises RecordsRejected for single records that do not match their schema.
        """
        parts = locate_parts(
            fetched.data,
            self._scratch,
            from_offset=from_offset,
            bytes_max=PART_BYTES,
            partition=fetched.partition,
        )
        size = len(fetched.data) if self._is_alone else 0
        made: list[DecodedChanges] = []
        while (part := await run_in_thread(partial(_next, parts), size)) is not None:
            found = _choose_wanted(part, end=end, skipped=skipped)
            if len(found):
                made += await self._decode_located(fetched.partition, found)
        return made

    async def _decode_located(
        self, partition: TopicPartition, found: RecordViews
    ) -> Sequence[DecodedChanges]:
        size = found.values.size if self._is_alone else 0
        works = await self._works(partition, found, divides=self._is_alone)
        made = await asyncio.gather(*(run_in_thread(work, size) for work in works))
        return [decoded for each in made for decoded in each]

    async def decode_records(
        self, partition: TopicPartition, columns: RecordColumns
    ) -> Sequence[DecodedChanges]:
        works = await self._works(partition, RecordViews.of(columns), divides=False)
        return [decoded for work in works for decoded in work()]

    async def _works(
        self, partition: TopicPartition, found: RecordViews, *, divides: bool
    ) -> Sequence[DecodeWork]:
        """Returns the work of each run of records of one schema; it may be divided."""
        ids = found.header_numbers(SCHEMA_HEADER)
        works = list[DecodeWork]()
        for first, end in _runs(ids):
            if ids[first] == NO_NUMBER:
                raise DecodeError(
                    "a record has no schema, so it was not written by a pipeline",
                    hint="write to a pipeline's topics only by the pipeline",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=int(found.offsets[first]),
                )
            stored = await self._schemas.find(partition.topic, int(ids[first]))
            run = found if end - first == len(found) else found.pick(slice(first, end))
            pieces = _divide(run) if divides else [run]
            works += [partial(self._decode_views, partition, each, stored) for each in pieces]
        return works

    def _decode_views(
        self, partition: TopicPartition, views: RecordViews, stored: StoredSchema
    ) -> Sequence[DecodedChanges]:
        return [
            DecodedChanges(changes, part.values.size)
            for part in _between_truncates(views)
            if (changes := self._view_records(partition, part, stored)) is not None
        ]

    def _view_records(
        self, partition: TopicPartition, found: RecordViews, stored: StoredSchema
    ) -> TableChanges | None:
        changes = self._decode_one(partition, found, stored)
        if changes is None:
            return None
        return self._schemas.view(partition.topic, stored.id).apply(changes)

    def _decode_one(
        self, partition: TopicPartition, found: RecordViews, stored: StoredSchema
    ) -> TableChanges | None:
        if len(found) == 1 and _is_truncate(found):
            return truncate_of(partition, found.columns(), stored)
        if (found.values.lengths < 0).any():
            found = found.pick(found.values.lengths >= 0)
        if not len(found):
            return None
        codec = self._codec(partition.topic, stored)
        try:
            changes = codec.scan(found.values, stored.schema)
            if changes is None:
                keys, values = found.keys.column(), found.values.column()
                changes = codec.decode(keys, values, stored.schema)
        except RowsRejected as error:
            raise RecordsRejected(
                "the records do not match their schema",
                topic=partition.topic,
                partition=partition.partition,
                reasons={int(found.offsets[row]): why for row, why in error.reasons.items()},
            ) from error
        return replace(
            changes,
            operations=_with_rereads(changes.operations, found.headers),
            log_partition=partition,
            log_offsets=pa.array(found.offsets, pa.int64()),
        )

    def _codec(self, topic: str, stored: StoredSchema) -> RowCodec:
        found = self._codecs.get((topic, stored.id))
        if found is None:
            found = self._codecs[topic, stored.id] = codec_for(stored.wire, topic=topic)
        return found


def neighbours(
    decoded: Sequence[DecodedChanges], *, bytes_max: int
) -> Iterator[Sequence[DecodedChanges]]:
    """Groups consecutive parts that can be decoded as one."""
    together: list[DecodedChanges] = []
    for each in decoded:
        if together and not _belong_together(together, each, bytes_max):
            yield together
            together = []
        together.append(each)
    if together:
        yield together


def _belong_together(
    decoded: Sequence[DecodedChanges], last: DecodedChanges, bytes_max: int
) -> bool:
    return (
        decoded[0].changes.schema is last.changes.schema
        and not (decoded[0].changes.is_truncate or last.changes.is_truncate)
        and sum(each.bytes for each in (*decoded, last)) <= bytes_max
    )


def _next(parts: Iterator[RecordViews]) -> RecordViews | None:
    try:
        return next(parts, None)
    except UnreadableBatch as error:
        error.hint = REPLACED
        raise


def _choose_wanted(found: RecordViews, *, end: int, skipped: Set[int]) -> RecordViews:
    if len(found) and found.offsets[-1] >= end:
        found = found.pick(slice(0, int(np.searchsorted(found.offsets, end))))
    if skipped:
        found = found.pick(~np.isin(found.offsets, list(skipped)))
    return found


def _with_rereads(operations: pa.UInt8Array, headers: RecordField) -> pa.UInt8Array:
    """Marks re-read rows by their header. Records with only two headers, schema and place, have
    none."""
    places = np.flatnonzero(operations.to_numpy() == Operation.READ)
    places = places[headers.data[headers.starts[places]] > TWO_HEADERS]
    if not len(places):
        return operations
    said = header_column(headers.pick(places).column(), OPERATION_HEADER)
    found = operations.to_numpy().copy()
    found[places[np.asarray(pc.equal(said, REREAD).fill_null(False))]] = Operation.REREAD
    return pa.array(found)


def _is_truncate(found: RecordViews) -> bool:
    said = header_column(found.headers.column(), OPERATION_HEADER)[0].as_py()
    return bool(said == b"truncate")


def _divide(found: RecordViews) -> Sequence[RecordViews]:
    """Splits into as many parts as there are cores."""
    count = slices_of(len(found))
    if count == 1:
        return [found]
    size = -(-len(found) // count)
    return [found.pick(slice(start, start + size)) for start in range(0, len(found), size)]


def _runs(ids: Int64Array) -> Iterator[tuple[int, int]]:
    """Yields runs of records of one schema."""
    ends = np.append(np.flatnonzero(np.diff(ids)) + 1, len(ids))
    start = 0
    for end in ends.tolist():
        yield start, end
        start = end


def _between_truncates(found: RecordViews) -> Iterator[RecordViews]:
    """Splits at truncate markers; each marker stays alone."""
    places = np.flatnonzero(found.keys.lengths == len(TRUNCATE_KEY))
    keys = found.keys.pick(places).column().to_pylist()
    start = 0
    for at, key in zip(places.tolist(), keys, strict=True):
        if key != TRUNCATE_KEY:
            continue
        if start < at:
            yield found.pick(slice(start, at))
        yield found.pick(slice(at, at + 1))
        start = at + 1
    if start < len(found):
        yield found.pick(slice(start, None)) if start else found


def truncate_of(
    partition: TopicPartition, columns: RecordColumns, stored: StoredSchema
) -> TableChanges:
    schema = stored.schema.arrow
    nothing = pa.RecordBatch.from_arrays(
        [pa.nulls(1, field.type) for field in schema], schema=schema
    )
    return TableChanges(
        schema=stored.schema,
        rows=nothing,
        operations=pa.array([Operation.TRUNCATE], pa.uint8()),
        source={"ts_us": _truncated_us(columns)},
        log_partition=partition,
        log_offsets=pa.array(columns.offsets, pa.int64()),
    )


def _truncated_us(columns: RecordColumns) -> int:
    """Returns when the source committed it; when it was appended, if the value has no time."""
    try:
        event = orjson.loads(columns.values[0].as_py() or b"")
        event = event.get("payload", event)
        return int(event[TIME_US] if TIME_US in event else event["source"]["ts_us"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return int(columns.timestamps_ms[0]) * 1_000
