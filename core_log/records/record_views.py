"""Views of records of fetched batches: keys and values stay in the decompressed bytes."""

# Copying every field into a column of its own costs more than all the reading that follows.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.foundation.speed import CompiledSpeed, chosen_speed
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    check_batch,
)
from headwater.core_log.records.compression import (
    Buffer,
    declared_bytes,
    decompress,
    decompress_into,
)
from headwater.core_log.records.record_codec import UNREADABLE, find_unreadable, iterate_batches
from headwater.core_log.records.record_fields import RECORD_BYTES_MIN, read_fields
from headwater.core_log.records.record_headers import header_column

COMPILED_RECORDS_MIN = 500
"""Fewer records at a time are read as fast without compiled code."""
WORTH_RECORDS = 20_000
SLACK_BYTES = 512
"""Zero bytes after the data, so that readers may read a little beyond a field."""
KEPT_BYTES_MAX = 32 << 20
STEP_BYTES = 1 << 20
TOO_MUCH = "fetched records expand beyond one column"
COLUMN_BYTES_MAX = 1 << 30
"""Offsets of binary columns have 31 bits."""
OFFSET, TIME, KEY, KEY_BYTES, VALUE, VALUE_BYTES, HEADERS, END = range(8)
"""Rows of the array that describes records: two deltas, then starts and lengths of fields."""
NO_NUMBER = -1


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records of one partition in the order of their offsets; headers are still encoded."""

    offsets: Int64Array
    timestamps_ms: Int64Array
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.offsets)


class RecordScratch:
    """Memory for decompressed records that is used again for the next ones: the kernel would supply
    fresh memory of that size page by page each time."""

    def __init__(self) -> None:
        self._memory: UInt8Array = np.zeros(0, np.uint8)

    def room(self, size: int) -> UInt8Array:
        """Returns at least that many bytes, followed by zeros."""
        wanted = size + SLACK_BYTES
        if len(self._memory) >= wanted:
            return self._memory
        memory: UInt8Array = np.zeros(-(-wanted // STEP_BYTES) * STEP_BYTES, np.uint8)
        if len(memory) <= KEPT_BYTES_MAX:
            self._memory = memory
        return memory


@dataclass(frozen=True, slots=True)
class RecordField:
    """One field of many records as views into `data`; a length of -1 is null."""

    data: UInt8Array
    starts: Int64Array
    lengths: Int64Array

    @classmethod
    def of(cls, column: pa.Array) -> "RecordField":
        """Returns the views of a column of bytes or text."""
        bounds = np.zeros(1, np.int64)
        data: UInt8Array = np.zeros(0, np.uint8)
        if len(column):
            _, offsets, buffer = column.buffers()
            found = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
            bounds = found.astype(np.int64)
            data = data if buffer is None else np.frombuffer(buffer, np.uint8)
        lengths = np.diff(bounds)
        if column.null_count:
            lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
        return cls(data, bounds[:-1], lengths)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def ends(self) -> Int64Array:
        ends: Int64Array = self.starts + self.lengths.clip(0)
        return ends

    @property
    def size(self) -> int:
        return int(self.lengths.clip(0).sum())

    def pick(self, rows: slice | BoolArray | Int64Array) -> "RecordField":
        return RecordField(self.data, self.starts[rows], self.lengths[rows])

    def column(self) -> pa.BinaryArray:
        """Returns the field as a column of its own (a copy)."""
        if not len(self):
            return pa.array([], pa.binary())
        marks = np.stack((self.starts, self.ends), axis=1).ravel()
        bounds = pa.py_buffer(np.append(marks, marks[-1:]).astype(np.int32))
        buffers = [None, bounds, pa.py_buffer(self.data)]
        slices = pa.Array.from_buffers(pa.binary(), len(marks), buffers)
        is_null = self.lengths < 0
        rows = np.arange(0, len(marks), 2)
        found: pa.BinaryArray = slices.take(
            pa.array(rows, mask=is_null) if is_null.any() else pa.array(rows)
        )
        return found


@dataclass(frozen=True, slots=True)
class RecordViews:
    """Records of one partition in the order of their offsets. They are valid until their
    `RecordScratch` is used again."""

    offsets: Int64Array
    timestamps_ms: Int64Array
    keys: RecordField
    values: RecordField
    headers: RecordField

    @classmethod
    def of(cls, columns: RecordColumns) -> "RecordViews":
        fields = (columns.keys, columns.values, columns.headers)
        return cls(columns.offsets, columns.timestamps_ms, *map(RecordField.of, fields))

    def __len__(self) -> int:
        return len(self.offsets)

    def columns(self) -> RecordColumns:
        """Returns the records as columns of their own (a copy)."""
        fields = (each.column() for each in (self.keys, self.values, self.headers))
        return RecordColumns(self.offsets, self.timestamps_ms, *fields)

    def pick(self, rows: slice | BoolArray | Int64Array) -> "RecordViews":
        return RecordViews(
            self.offsets[rows],
            self.timestamps_ms[rows],
            self.keys.pick(rows),
            self.values.pick(rows),
            self.headers.pick(rows),
        )

    def header_numbers(self, name: str) -> Int64Array:
        """Returns the numbers that this header has as text; `NO_NUMBER` if a record has no such
        header."""
        fields, encoded = self.headers, name.encode()
        found = np.full(len(fields), NO_NUMBER, np.int64)
        walk = _load_compiled(len(fields))
        if walk is not None:
            wanted = np.frombuffer(encoded, np.uint8)
            if walk.header_numbers(fields.data, fields.starts, fields.ends, wanted, found):
                return found
        for text in (texts := header_column(fields.column(), name)).unique().to_pylist():
            if text is not None:
                is_it = pa.compute.equal(texts, pa.scalar(text, pa.binary())).fill_null(False)
                found[is_it.to_numpy(zero_copy_only=False)] = int(text)
        return found


def locate(
    data: Buffer,
    scratch: RecordScratch,
    *,
    from_offset: int = 0,
    partition: TopicPartition | None = None,
) -> RecordViews:
    """Returns all records at or above an offset; checks checksums and leaves out control
    batches."""
    parts = locate_parts(
        data, scratch, from_offset=from_offset, bytes_max=COLUMN_BYTES_MAX, partition=partition
    )
    found = next(parts)
    if next(parts, None) is not None:
        raise DecodeError(TOO_MUCH, hint="fetch fewer bytes")
    return found


def locate_parts(
    data: Buffer,
    scratch: RecordScratch,
    *,
    from_offset: int = 0,
    bytes_max: int,
    partition: TopicPartition | None = None,
) -> Iterator[RecordViews]:
    """Yields them in parts of at most `bytes_max`, or of one batch; there is at least one part. The
    next part reuses the memory of the one before."""
    try:
        yield from _parts(data, scratch, from_offset, bytes_max)
    except UNREADABLE as error:
        raise find_unreadable(
            error, data, lambda batch: [*_parts(batch, scratch, from_offset, bytes_max)], partition
        ) from error


def _parts(
    data: Buffer, scratch: RecordScratch, from_offset: int, bytes_max: int
) -> Iterator[RecordViews]:
    packed: list[_Packed] = []
    size = 0
    for batch in iterate_batches(data):
        header = check_batch(batch)
        if header.is_control or header.last_offset < from_offset:
            continue
        section = memoryview(batch)[HEADER_BYTES:]
        declared = declared_bytes(header.compression, section)
        whole = decompress(header.compression, section) if declared is None else None
        each = _Packed(header, section, whole, declared or len(whole or b""))
        if packed and size + each.size > bytes_max:
            yield _locate(packed, scratch, from_offset=from_offset)
            packed, size = [], 0
        packed.append(each)
        size += each.size
    yield _locate(packed, scratch, from_offset=from_offset)


class _Packed(NamedTuple):
    """A batch, and its records if they had to be decompressed to know their size."""

    header: BatchHeader
    section: memoryview
    whole: Buffer | None
    size: int


def _locate(packed: Sequence[_Packed], scratch: RecordScratch, *, from_offset: int) -> RecordViews:
    memory, ends = _decompress(packed, scratch)
    starts = np.append(0, ends[:-1]) if len(ends) else ends
    counts = np.array([each.header.record_count for each in packed], dtype=np.int64)
    found, section = _find(memory, starts, ends, counts)
    heads = [_numbers_of(each.header) for each in packed]
    numbers = np.array(heads, dtype=np.int64).reshape(-1, 4).T
    base_offsets, last_deltas, base_times, append_times = numbers
    offsets = base_offsets[section] + found[OFFSET]
    beyond = (found[OFFSET] > last_deltas[section]) | (found[OFFSET] < 0)
    if beyond.any() or (np.diff(offsets) <= 0).any():
        raise DecodeError("records are not in the order of their offsets")
    times = base_times[section] + found[TIME]
    given = append_times[section]
    located = RecordViews(
        offsets,
        np.where(given >= 0, given, times),
        RecordField(memory, found[KEY], found[KEY_BYTES]),
        RecordField(memory, found[VALUE], found[VALUE_BYTES]),
        RecordField(memory, found[HEADERS], found[END] - found[HEADERS]),
    )
    first = int(np.searchsorted(offsets, from_offset))
    return located.pick(slice(first, None)) if first else located


def _decompress(packed: Sequence[_Packed], scratch: RecordScratch) -> tuple[UInt8Array, Int64Array]:
    """Returns all records sections in one buffer, and where each ends."""
    while True:
        sizes = np.array([each.size for each in packed], dtype=np.int64)
        ends: Int64Array = np.cumsum(sizes)
        if len(ends) and ends[-1] > COLUMN_BYTES_MAX:
            raise DecodeError(TOO_MUCH, hint="fetch fewer bytes")
        memory = scratch.room(int(ends[-1]) if len(ends) else 0)
        bounds = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
        rooms = [memory.data[start:end] for start, end in bounds]
        if all(_put(each, room) for each, room in zip(packed, rooms, strict=True)):
            return memory, ends
        packed = [_unpack(each) for each in packed]


def _put(packed: _Packed, room: memoryview) -> bool:
    if packed.whole is None:
        return decompress_into(packed.header.compression, packed.section, room)
    room[:] = packed.whole
    return True


def _unpack(packed: _Packed) -> _Packed:
    whole = decompress(packed.header.compression, packed.section)
    return packed._replace(whole=whole, size=len(whole))


def _find(
    data: UInt8Array, starts: Int64Array, ends: Int64Array, counts: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Returns the numbers of all records, and the section of each."""
    if ((counts < 0) | (counts > (ends - starts) // RECORD_BYTES_MIN)).any():
        raise DecodeError("batch cannot hold its records")
    total = int(counts.sum())
    section = np.repeat(np.arange(len(counts)), counts)
    walk = _load_compiled(total)
    if walk is not None:
        found: Int64Array = np.empty((8, total), np.int64)
        if walk.locate(data, starts, ends, counts, found):
            return found, section
    fields = read_fields(data, starts, ends, counts)
    found = np.stack(
        (
            fields.offset_deltas,
            fields.timestamp_deltas,
            fields.key_starts,
            fields.key_lengths,
            fields.value_starts,
            fields.value_lengths,
            fields.header_starts,
            fields.ends,
        )
    )
    return found, fields.section


def _numbers_of(header: BatchHeader) -> tuple[int, int, int, int]:
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
    return header.base_offset, header.last_offset_delta, header.base_timestamp, append_time


def wait_until_loaded() -> None:
    """Waits for the compiled code, if there is a compiler."""
    _walk().wait_until_loaded()


def _load_compiled(records: int) -> ModuleType | None:
    if records < COMPILED_RECORDS_MIN:
        return None
    _walk().count(records)
    walk: ModuleType | None = _walk().now
    return walk


@cache
def _walk() -> CompiledSpeed[Any]:
    return CompiledSpeed(None, _load if chosen_speed() == "fast" else None, WORTH_RECORDS)


def _load() -> Any:
    from headwater.core_log.compiled import record_kernels

    # Compiled at the first call, for the types of its arrays.
    memory, nowhere = RecordScratch().room(0), np.zeros(0, np.int64)
    record_kernels.locate(memory, nowhere, nowhere, nowhere, np.empty((8, 0), np.int64))
    name = np.frombuffer(b"name", np.uint8)
    record_kernels.header_numbers(memory, nowhere, nowhere, name, nowhere.copy())
    return record_kernels
