"""Kafka record batches (format v2): Arrow columns to bytes and back, without one Python object per
row."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import (
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    Batch,
    BatchHeader,
    check_batch,
)
from headwater.core_log.records.compression import Buffer, compress, decompress
from headwater.core_log.records.record_codec import encode_varint, iterate_batches
from headwater.core_log.records.record_fields import RecordFields, RecordSections, read_fields
from headwater.core_log.records.record_headers import (
    FEW,
    NO_HEADERS,
    lengths_or_minus_one,
    pack_stretches,
)
from headwater.core_log.records.row_parts import RowColumn, ValueEncoding
from headwater.core_log.records.row_writer import join
from headwater.core_log.records.unreadable_batch import UNREADABLE, found_unreadable
from headwater.core_log.records.varint import varint_lengths

BATCH_BYTES_MAX = 1 << 20
"""Below Kafka's default of max.message.bytes."""

LAID_OUT_BYTES_MAX = 4 << 20
"""Limit of a batch before compression, for writers of compressible records. Fewer batches are fewer
requests, and each request costs both sides as much as thousands of records."""

SPAN_BYTES = 4 << 20
COLUMN_BYTES_MAX = 1 << 30
"""Offsets of binary columns have 31 bits."""


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

    def slice_from(self, offset: int) -> "RecordColumns":
        """Returns the records at or above an offset."""
        start = int(np.searchsorted(self.offsets, offset))
        return (
            self
            if not start
            else RecordColumns(
                self.offsets[start:],
                self.timestamps_ms[start:],
                self.keys[start:],
                self.values[start:],
                self.headers[start:],
            )
        )


def encode(
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    *,
    timestamps_ms: int | Int64Array,
    headers: bytes | pa.BinaryArray = NO_HEADERS,
    compression: int = 0,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    laid_out_bytes_max: int = 0,
) -> list[Batch]:
    """Returns as few batches as the limit allows; only a single record that is too large exceeds
    it.

    `laid_out_bytes_max` is a larger limit before compression. A batch that exceeds the limit after
    it is divided by its uncompressed size.
    """
    times = np.broadcast_to(np.asarray(timestamps_ms, dtype=np.int64), (len(keys),))
    if 0 < len(keys) <= FEW:
        section = _few_records(keys, values, times, headers)
        if len(section) + HEADER_BYTES <= batch_bytes_max:
            return [_frame(section, times, compression)]
    batches: list[Batch] = []
    bytes_max = max(batch_bytes_max, laid_out_bytes_max if compression else 0)
    for span in _spans(_cut(keys, values, times, headers, bytes_max - HEADER_BYTES)):
        first = span[0][0]
        rows = slice(first, span[-1][1])
        part = headers if isinstance(headers, bytes) else headers[rows]
        bounds = np.array(span, dtype=np.int64) - first
        records = encode_records(keys[rows], values[rows], times[rows], bounds, part)
        for (start, end), section in zip(span, records, strict=True):
            batch = _frame(section, times[start:end], compression)
            if len(batch.data) <= batch_bytes_max or bytes_max == batch_bytes_max:
                batches.append(batch)
                continue
            batches += encode(
                keys[start:end],
                values[start:end],
                timestamps_ms=times[start:end],
                headers=headers if isinstance(headers, bytes) else headers[start:end],
                compression=compression,
                batch_bytes_max=batch_bytes_max,
            )
    return batches


def encode_records(
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    timestamps_ms: Int64Array,
    batches: Int64Array,
    headers: bytes | pa.BinaryArray = NO_HEADERS,
) -> Iterator[memoryview]:
    """Encodes one record per row and yields the records sections of the given row ranges.

    The join writes every record into one shared buffer, so slices of it are the records sections:
    no row becomes a Python object.
    """
    key_bytes, value_bytes = lengths_or_minus_one(keys), lengths_or_minus_one(values)
    firsts = np.repeat(batches[:, 0], batches[:, 1] - batches[:, 0])
    offset_deltas: Int64Array = np.arange(len(keys), dtype=np.int64) - firsts
    time_deltas = timestamps_ms - timestamps_ms[firsts]
    numbers = (time_deltas, offset_deltas, key_bytes, value_bytes)
    record_bytes = 1 + sum(map(varint_lengths, numbers))  # 1: attributes
    record_bytes += key_bytes.clip(0) + value_bytes.clip(0) + _header_bytes(headers)
    attributes: Int64Array = np.zeros_like(offset_deltas)
    head = (record_bytes, attributes, time_deltas, offset_deltas, key_bytes)
    pieces = [
        *(RowColumn(pa.array(each), ValueEncoding.VARINT) for each in head),
        RowColumn(keys, ValueEncoding.RAW),
        RowColumn(pa.array(value_bytes), ValueEncoding.VARINT),
        RowColumn(values, ValueEncoding.RAW),
        headers if isinstance(headers, bytes) else RowColumn(headers, ValueEncoding.RAW),
    ]
    joined = join(pieces, len(keys), kind=pa.binary())
    ends = np.frombuffer(joined.buffers()[1], np.int32)
    data = memoryview(joined.buffers()[2])
    for start, end in batches.tolist():
        yield data[ends[start] : ends[end]]


def decode(
    data: Buffer, *, from_offset: int = 0, partition: TopicPartition | None = None
) -> RecordColumns:
    """Returns all records at or above an offset; checks checksums and leaves out control batches.
    `partition` is for the error about an unreadable batch."""
    parts = decode_parts(
        data, from_offset=from_offset, bytes_max=COLUMN_BYTES_MAX, partition=partition
    )
    columns = next(parts, _EMPTY)
    if next(parts, None) is not None:
        raise DecodeError("fetched records expand beyond one column", hint="fetch fewer bytes")
    return columns


def decode_parts(
    data: Buffer,
    *,
    from_offset: int = 0,
    bytes_max: int,
    partition: TopicPartition | None = None,
) -> Iterator[RecordColumns]:
    """Yields them in parts of at most `bytes_max` of records each, or of one batch."""
    try:
        yield from _parts(data, from_offset, bytes_max)
    except UNREADABLE as error:
        raise found_unreadable(
            error, data, lambda batch: [*_parts(batch, from_offset, bytes_max)], partition
        ) from error


def _parts(data: Buffer, from_offset: int, bytes_max: int) -> Iterator[RecordColumns]:
    part, size, position = _Part(memoryview(data)), 0, 0
    for batch in iterate_batches(data):
        header = check_batch(batch)
        position += len(batch)
        if header.is_control or header.last_offset < from_offset:
            continue
        section = decompress(header.compression, batch[HEADER_BYTES:])
        if part.headers and size + len(section) > bytes_max:
            yield part.decode().slice_from(from_offset)
            part, size = _Part(part.data), 0
        part.headers.append(header)
        part.sections.append(section)
        part.ends.append(position)
        size += len(section)
    if part.headers:
        yield part.decode().slice_from(from_offset)


@dataclass(slots=True)
class _Part:
    """Neighbouring batches that become columns together."""

    data: memoryview
    headers: list[BatchHeader] = field(default_factory=list)
    sections: list[Buffer] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def decode(self) -> RecordColumns:
        data, starts, ends = self._lay_out()
        heads = np.array([_numbers_of(header) for header in self.headers], dtype=np.int64).T
        counts, base_offsets, last_deltas, base_times, append_times = heads
        fields = read_fields(RecordSections(np.frombuffer(data, np.uint8), starts, ends, counts))
        offsets = base_offsets[fields.section] + fields.offset_deltas
        beyond = fields.offset_deltas > last_deltas[fields.section]
        if beyond.any() or (fields.offset_deltas < 0).any() or (np.diff(offsets) <= 0).any():
            raise DecodeError("records are not in the order of their offsets")
        times = base_times[fields.section] + fields.timestamp_deltas
        if (append_times >= 0).any():
            given = append_times[fields.section]
            times = np.where(given >= 0, given, times)
        return RecordColumns(offsets, times, *cut_cells(fields, pa.py_buffer(data)))

    def _lay_out(self) -> tuple[Buffer, Int64Array, Int64Array]:
        """Returns all records sections in one buffer: the fetched one if nothing is compressed."""
        lengths = np.array([len(section) for section in self.sections], dtype=np.int64)
        if any(header.compression for header in self.headers):
            ends = np.cumsum(lengths)
            return b"".join(self.sections), ends - lengths, ends
        first = self.ends[0] - len(self.sections[0])
        ends = np.array(self.ends, dtype=np.int64) - first
        return self.data[first : self.ends[-1]], ends - lengths, ends


def _numbers_of(header: BatchHeader) -> tuple[int, int, int, int, int]:
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
    return (
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        append_time,
    )


def cut_cells(
    fields: RecordFields, data: pa.Buffer
) -> tuple[pa.BinaryArray, pa.BinaryArray, pa.BinaryArray]:
    """Returns keys, values and encoded headers.

    Keys, values, headers and the bytes between them alternate in one buffer. Marking the bounds and
    taking every fifth range copies each column in C++.
    """
    key_ends = fields.key_starts + fields.key_lengths.clip(0)
    marks = (fields.key_starts, key_ends, fields.value_starts, fields.header_starts, fields.ends)
    stretches = pack_stretches(np.stack(marks, axis=1).ravel(), data)
    rows = np.arange(0, len(stretches), 5)
    keys = stretches.take(_indices(rows, fields.key_lengths))
    values = stretches.take(_indices(rows + 2, fields.value_lengths))
    if (fields.ends - fields.header_starts == 1).all():
        return keys, values, _single_bytes(stretches, rows + 3)
    return keys, values, stretches.take(pa.array(rows + 3))


def _single_bytes(stretches: pa.BinaryArray, rows: Int64Array) -> pa.BinaryArray:
    """Returns values of one byte each: the header counts when no record has a header."""
    data = np.frombuffer(stretches.buffers()[2], np.uint8)
    firsts = np.frombuffer(stretches.buffers()[1], np.int32)[rows]
    bounds = np.arange(len(rows) + 1, dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data[firsts])]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def _indices(rows: Int64Array, lengths: Int64Array) -> pa.Array:
    is_null = lengths < 0
    return pa.array(rows, mask=is_null) if is_null.any() else pa.array(rows)


def _few_records(
    keys: pa.BinaryArray, values: pa.BinaryArray, times: Int64Array, headers: bytes | pa.BinaryArray
) -> memoryview:
    """Returns the same section as `encode_records`. For few rows, calls on columns take longer than
    their bytes."""
    section = bytearray()
    sets = [headers] * len(keys) if isinstance(headers, bytes) else headers.to_pylist()
    rows = zip(keys.to_pylist(), values.to_pylist(), times.tolist(), sets, strict=True)
    for place, (key, value, time_ms, encoded) in enumerate(rows):
        pieces = [b"\0", encode_varint(time_ms - int(times[0])), encode_varint(place)]
        for cell in (key, value):
            pieces += [encode_varint(-1 if cell is None else len(cell)), cell or b""]
        record = b"".join([*pieces, encoded])
        section += encode_varint(len(record)) + record
    return memoryview(section)


def _header_bytes(headers: bytes | pa.BinaryArray) -> int | Int64Array:
    return len(headers) if isinstance(headers, bytes) else lengths_or_minus_one(headers)


def _spans(cuts: Iterator[tuple[int, int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yields groups of neighbouring batches to encode together: many small ones cost hardly more
    than one."""
    span: list[tuple[int, int]] = []
    room = SPAN_BYTES
    for start, end, size in cuts:
        if span and size > room:
            yield span
            span, room = [], SPAN_BYTES
        span.append((start, end))
        room -= size
    if span:
        yield span


def _cut(
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    times: Int64Array,
    headers: bytes | pa.BinaryArray,
    bytes_max: int,
) -> Iterator[tuple[int, int, int]]:
    """Yields row ranges whose records surely fit, by the longest form of each number, and their
    size."""
    if not len(keys):
        return
    cells = lengths_or_minus_one(keys).clip(0) + lengths_or_minus_one(values).clip(0)
    cells += _header_bytes(headers)
    longest = (int(cells.max()) + 30, int(np.ptp(times)), len(keys), int(cells.max()))
    overhead = 1 + sum(len(encode_varint(number)) for number in (*longest, longest[-1]))
    ends = np.cumsum(cells + overhead)
    start = 0
    while start < len(keys):
        taken = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, taken + bytes_max, side="right"))
        end = max(end, start + 1)
        yield start, end, int(ends[end - 1]) - taken
        start = end


def _frame(section: memoryview, times: Int64Array, compression: int) -> Batch:
    """Prefixes the header. Records that compression does not make smaller are kept uncompressed."""
    payload = compress(compression, section)
    if len(payload) >= len(section):
        payload, compression = section, 0
    header = BatchHeader(
        base_offset=0,
        length=HEADER_BYTES - LENGTH_END + len(payload),
        leader_epoch=-1,
        magic=2,
        checksum=0,
        attributes=compression,
        last_offset_delta=len(times) - 1,
        base_timestamp=int(times[0]),
        max_timestamp=int(times.max()),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=len(times),
    )
    return Batch(bytearray().join((header.pack(), payload)), len(times), header.max_timestamp)


_NO_CELLS = pa.array([], pa.binary())
_EMPTY = RecordColumns(
    np.empty(0, np.int64), np.empty(0, np.int64), _NO_CELLS, _NO_CELLS, _NO_CELLS
)
