"""Records back into changes of tables, each by the schema that it was written under."""

import asyncio
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from core_log import records
from core_log.changes import Operation, TableChanges
from core_log.errors import DecodeError, RecordsRejected, RowsRejected
from core_log.log import Fetched, Log, TopicPartition
from core_log.record_headers import header_column
from core_log.records import Columns
from core_log.rows.codec import OPERATION_HEADER, SCHEMA_HEADER, TRUNCATE_KEY, RowCodec
from core_log.rows.codecs import codec_for
from pipelines.journal.schemas import SchemaReader, StoredSchema
from pipelines.loops.busy_work import beside, pieces_of

Mask = npt.NDArray[np.bool_]
Stretch = tuple[Columns, StoredSchema]
"""Records that follow one another under one schema."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Changes, and how large their records were."""

    changes: TableChanges
    bytes: int


class Decoder:
    """Keeps a codec for every schema that it has met."""

    def __init__(self, log: Log, *, is_alone: bool = True) -> None:
        """`is_alone`: whether the machine's other cores are free to help."""
        self._schemas, self._is_alone = SchemaReader(log), is_alone
        self._codecs: dict[tuple[str, int], RowCodec] = {}

    async def decode(
        self, fetched: Fetched, *, from_offset: int, end: int, skipped: Set[int]
    ) -> Sequence[Decoded]:
        """What stands from an offset on and before `end`, without tombstones; truncates alone.
        Raises RecordsRejected for single records that do not hold what their schema says."""
        size = len(fetched.data) if self._is_alone else 0
        columns = await beside(
            lambda: _wanted(fetched, from_offset=from_offset, end=end, skipped=skipped), size
        )
        if not len(columns):
            return []
        pieces = [
            piece
            for stretch in await self._stretches(fetched.partition, columns)
            for piece in (_divided(*stretch) if self._is_alone else [stretch])
        ]
        made = await asyncio.gather(
            *(
                beside(partial(self._decode_piece, fetched.partition, *piece), size)
                for piece in pieces
            )
        )
        return [decoded for each in made for decoded in each]

    async def decode_records(
        self, partition: TopicPartition, columns: Columns
    ) -> Sequence[Decoded]:
        """Of records that were chosen before."""
        return [
            decoded
            for stretch in await self._stretches(partition, columns)
            for decoded in self._decode_piece(partition, *stretch)
        ]

    async def _stretches(self, partition: TopicPartition, columns: Columns) -> list[Stretch]:
        found = []
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
            found.append((_sliced(columns, first, end), stored))
        return found

    def _decode_piece(
        self, partition: TopicPartition, piece: Columns, stored: StoredSchema
    ) -> Sequence[Decoded]:
        return [
            Decoded(changes, columns.values.nbytes)
            for columns in _between_truncates(piece)
            if (changes := self._decode_one(partition, columns, stored)) is not None
        ]

    def _decode_one(
        self, partition: TopicPartition, columns: Columns, stored: StoredSchema
    ) -> TableChanges | None:
        if header_column(columns.headers[:1], OPERATION_HEADER)[0].as_py() == b"truncate":
            return truncate_of(partition, columns, stored)
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


def _wanted(fetched: Fetched, *, from_offset: int, end: int, skipped: Set[int]) -> Columns:
    columns = records.decode(fetched.data, from_offset=from_offset)
    columns = _sliced(columns, 0, int(np.searchsorted(columns.offsets, end)))
    if skipped:
        columns = _chosen(columns, ~np.isin(columns.offsets, list(skipped)))
    return columns


def _divided(columns: Columns, stored: StoredSchema) -> Iterator[Stretch]:
    """As many pieces as there are cores to decode them side by side."""
    count = pieces_of(len(columns))
    size = -(-len(columns) // count)
    for start in range(0, len(columns), size):
        yield _sliced(columns, start, min(start + size, len(columns))), stored


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


def truncate_of(partition: TopicPartition, columns: Columns, stored: StoredSchema) -> TableChanges:
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


def _truncated_us(columns: Columns) -> int:
    """When the source committed it; when it was appended, where the value does not say."""
    try:
        event = orjson.loads(columns.values[0].as_py() or b"")
        return int(event.get("payload", event)["source"]["ts_us"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return int(columns.timestamps_ms[0]) * 1_000


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
