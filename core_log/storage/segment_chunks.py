"""Reads a segment in chunks of whole, checked batches, with their headers as columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import CorruptLog, DecodeError
from headwater.core_log.records.batch_header import (
    CHECKED_FROM,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
)
from headwater.core_log.records.compression import Buffer, decompress
from headwater.core_log.records.record_fields import (
    RecordFields,
    read_fields,
    read_fields_at,
)
from headwater.core_log.storage.files import File

CHUNK_BYTES = 4 << 20  # data in use at one time should fit into the processor's cache
COMPRESSED_CHUNK_BYTES = 1 << 20
BATCH_RECORDS_BYTES_MAX = 512 << 20
PART_BYTES_MAX = 32 << 20

ChunkRows = npt.NDArray[Any]

HEADS = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("checksum", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""The fields of `BatchHeader`, in the same order and bytes."""
assert HEADS.names == BatchHeader._fields, "both name the fields of one head"
assert HEADS.itemsize == HEADER_BYTES, "the head of a v2 batch is 61 bytes"

_LENGTH, _CHECKSUM = Struct(">i"), Struct(">I")


@dataclass(frozen=True, slots=True)
class SegmentChunk:
    """Some neighbouring batches of one file; one row per batch."""

    file: str
    position: int
    data: memoryview
    starts: Int64Array
    """Positions within `data`; the batches follow each other without gaps."""
    ends: Int64Array
    heads: ChunkRows

    def column(self, name: str) -> Int64Array:
        column: Int64Array = self.heads[name].astype(np.int64)
        return column

    @property
    def last_offsets(self) -> Int64Array:
        return self.column("base_offset") + self.column("last_offset_delta")

    @property
    def offset_range(self) -> tuple[int, int]:
        """The first offset, and the one after the last."""
        return int(self.heads["base_offset"][0]), int(self.last_offsets[-1]) + 1

    def header(self, row: int) -> BatchHeader:
        return BatchHeader.read(self.data, int(self.starts[row]))

    def records(self, row: int) -> Buffer:
        """Returns the records section of one batch, decompressed."""
        section = self.data[self.starts[row] + HEADER_BYTES : self.ends[row]]
        code = int(self.heads["attributes"][row]) & COMPRESSION_MASK
        return decompress(code, section, bytes_max=BATCH_RECORDS_BYTES_MAX)

    def damage(self, row: int, reason: str) -> CorruptLog:
        return CorruptLog(
            "stored batch is damaged",
            file=self.file,
            position=self.position + int(self.starts[row]),
            offset=int(self.heads["base_offset"][row]),
            reason=reason,
        )


@dataclass(frozen=True, slots=True)
class ChunkRecords:
    """The records of some rows of a chunk in one buffer; `fields.section` is an index into
    `rows`."""

    rows: ChunkRows
    data: Buffer
    fields: RecordFields
    offsets: Int64Array


def read_chunks(file: File, size: int, *, name: str, base_offset: int) -> Iterator[SegmentChunk]:
    """Yields the chunks; raises `CorruptLog` at the first damaged batch."""
    position, next_offset, wanted = 0, base_offset, COMPRESSED_CHUNK_BYTES
    while position < size:
        data = file.read(position, min(wanted, size - position))
        if len(data) >= LENGTH_END:
            first = _LENGTH.unpack_from(data, LENGTH_END - _LENGTH.size)[0] + LENGTH_END
            if len(data) < first <= size - position:
                data = file.read(position, first)
        chunk = _parse(data, position, size, name=name, next_offset=next_offset)
        yield chunk
        is_compressed = bool((chunk.heads["attributes"] & COMPRESSION_MASK).any())
        wanted = COMPRESSED_CHUNK_BYTES if is_compressed else CHUNK_BYTES
        position += int(chunk.ends[-1])
        next_offset = int(chunk.last_offsets[-1]) + 1


def _parse(data: bytes, position: int, size: int, *, name: str, next_offset: int) -> SegmentChunk:
    view, starts, begin, reason = memoryview(data), [], 0, "file ends inside a batch"
    is_last = position + len(data) == size
    while begin + HEADER_BYTES <= len(data):
        end = begin + _LENGTH.unpack_from(data, begin + 8)[0] + LENGTH_END
        if end < begin + HEADER_BYTES:
            reason, is_last = "batch does not begin at the expected position", True
            break
        if end > len(data):
            break
        if crc32c(view[begin + CHECKED_FROM : end]) != _CHECKSUM.unpack_from(data, begin + 17)[0]:
            reason, is_last = "batch fails its checksum", True
            break
        starts.append(begin)
        begin = end
    chunk = _columns(view[:begin], position, starts, name)
    _check_heads(chunk, next_offset)
    if (is_last and begin < len(data)) or not starts:
        after = int(chunk.last_offsets[-1]) + 1 if starts else next_offset
        raise CorruptLog(
            "stored batch is damaged",
            file=name,
            position=position + begin,
            offset=after,
            reason=reason,
        )
    return chunk


def _columns(data: memoryview, position: int, begins: list[int], name: str) -> SegmentChunk:
    starts = np.array(begins, dtype=np.int64)
    ends = np.append(starts[1:], len(data))[: len(starts)]
    raw = np.frombuffer(data, np.uint8)
    heads = raw[starts[:, None] + np.arange(HEADER_BYTES)].view(HEADS).ravel()
    return SegmentChunk(name, position, data, starts, ends, heads)


def _check_heads(chunk: SegmentChunk, next_offset: int) -> None:
    if not len(chunk.heads):
        return
    deltas, counts = chunk.column("last_offset_delta"), chunk.column("record_count")
    expected = np.append(next_offset, chunk.last_offsets[:-1] + 1)
    checks = (
        (chunk.heads["magic"] != 2, "batch does not begin at the expected position"),
        ((deltas < 0) | (counts < 0) | (counts > deltas + 1), "head contradicts itself"),
        (chunk.column("base_offset") < expected, "batch repeats offsets"),
    )
    for is_wrong, reason in checks:
        if is_wrong.any():
            raise chunk.damage(int(np.flatnonzero(is_wrong)[0]), reason)


def read_records(chunk: SegmentChunk, rows: ChunkRows) -> Iterator[ChunkRecords]:
    """Yields the records of chosen batches in parts of limited size, or of one batch."""
    compressed = (chunk.column("attributes")[rows] & COMPRESSION_MASK) != 0
    if not compressed.any():
        if len(rows):
            yield _chunk_records(chunk, rows, chunk.data, chunk.starts[rows] + HEADER_BYTES)
        return
    taken: list[int] = []
    sections: list[Buffer] = []
    size = 0
    for row in rows.tolist():
        try:
            section = chunk.records(row)
        except DecodeError as error:
            raise chunk.damage(row, str(error)) from error
        if taken and size + len(section) > PART_BYTES_MAX:
            yield _join(chunk, taken, sections)
            taken, sections, size = [], [], 0
        taken.append(row)
        sections.append(section)
        size += len(section)
    yield _join(chunk, taken, sections)


def read_readable(
    chunk: SegmentChunk, rows: ChunkRows, unreadable: set[int]
) -> Iterator[ChunkRecords]:
    """Does the same without batches that contradict their headers. Their checksums are right, so
    they arrived like this; their start positions are added to `unreadable`."""
    done = 0
    try:
        for records in read_records(chunk, rows):
            done += len(records.rows)
            yield records
    except CorruptLog:
        for index in range(done, len(rows)):
            try:
                yield from read_records(chunk, rows[index : index + 1])
            except CorruptLog:
                unreadable.add(int(chunk.heads["base_offset"][rows[index]]))


def pick_records(
    chunk: SegmentChunk, rows: ChunkRows, starts: Int64Array, wanted: Int64Array
) -> ChunkRecords | None:
    """Returns only the records at the wanted offsets, if the positions of all records in the rows
    are known. Returns None if offsets have gaps, so that they are no index of the records."""
    counts, bases = chunk.column("record_count")[rows], chunk.column("base_offset")[rows]
    if (counts != chunk.column("last_offset_delta")[rows] + 1).any():
        return None
    section = np.searchsorted(bases, wanted, side="right") - 1
    lasts = np.cumsum(counts) - 1
    numbers = wanted - bases[section] + (lasts - counts + 1)[section]
    following = starts[np.minimum(numbers + 1, len(starts) - 1)]
    ends = np.where(numbers == lasts[section], chunk.ends[rows][section], following)
    data = np.frombuffer(chunk.data, np.uint8)
    fields = read_fields_at(data, section, starts[numbers], ends)
    return ChunkRecords(rows, chunk.data, fields, wanted)


def _join(chunk: SegmentChunk, rows: list[int], sections: Sequence[Buffer]) -> ChunkRecords:
    ends = np.cumsum([len(section) for section in sections])
    return _chunk_records(chunk, np.array(rows), b"".join(sections), np.append(0, ends[:-1]), ends)


def _chunk_records(
    chunk: SegmentChunk,
    rows: ChunkRows,
    data: Buffer,
    starts: Int64Array,
    ends: Int64Array | None = None,
) -> ChunkRecords:
    limits = chunk.ends[rows] if ends is None else ends
    counts = chunk.column("record_count")[rows]
    try:
        fields = read_fields(np.frombuffer(data, np.uint8), starts, limits, counts)
    except DecodeError as error:
        if len(rows) == 1:
            raise chunk.damage(int(rows[0]), str(error)) from error
        for at in range(len(rows)):  # one of them is the cause
            _chunk_records(chunk, rows[at : at + 1], data, starts[at:][:1], limits[at:][:1])
        raise
    offsets = chunk.column("base_offset")[rows][fields.section] + fields.offset_deltas
    beyond = offsets > chunk.last_offsets[rows][fields.section]
    is_wrong = beyond | (fields.offset_deltas < 0)
    is_wrong[1:] |= np.diff(offsets) <= 0
    if is_wrong.any():
        row = rows[fields.section[np.flatnonzero(is_wrong)[0]]]
        raise chunk.damage(int(row), "records are not in the order of their offsets")
    return ChunkRecords(rows, data, fields, offsets)
