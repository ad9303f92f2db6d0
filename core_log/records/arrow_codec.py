"""Kafka record batches (format v2): Arrow columns to bytes and back, without one Python object per
row."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import (
    HEADER_BYTES,
    LENGTH_END,
    Batch,
    BatchHeader,
)
from headwater.core_log.records.compression import Buffer, compress
from headwater.core_log.records.record_codec import encode_varint
from headwater.core_log.records.record_headers import (
    FEW,
    NO_HEADERS,
    lengths_or_minus_one,
)
from headwater.core_log.records.record_views import (
    RecordColumns,
    RecordScratch,
    locate,
    locate_parts,
)
from headwater.core_log.records.row_writer import RowColumn, ValueEncoding, join
from headwater.core_log.records.varint import varint_lengths

BATCH_BYTES_MAX = 1 << 20
"""Below Kafka's default of max.message.bytes."""

LAID_OUT_BYTES_MAX = 4 << 20
"""Limit of a batch before compression, for writers of compressible records. Fewer batches are fewer
requests, and each request costs both sides as much as thousands of records."""

SPAN_BYTES = 4 << 20


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
    parts = [
        *(RowColumn(pa.array(each), ValueEncoding.VARINT) for each in head),
        RowColumn(keys, ValueEncoding.RAW),
        RowColumn(pa.array(value_bytes), ValueEncoding.VARINT),
        RowColumn(values, ValueEncoding.RAW),
        headers if isinstance(headers, bytes) else RowColumn(headers, ValueEncoding.RAW),
    ]
    joined = join(parts, len(keys), kind=pa.binary())
    ends = np.frombuffer(joined.buffers()[1], np.int32)
    data = memoryview(joined.buffers()[2])
    for start, end in batches.tolist():
        yield data[ends[start] : ends[end]]


def decode(
    data: Buffer, *, from_offset: int = 0, partition: TopicPartition | None = None
) -> RecordColumns:
    """Returns all records at or above an offset; checks checksums and leaves out control batches.
    `partition` is for the error about an unreadable batch."""
    return locate(data, RecordScratch(), from_offset=from_offset, partition=partition).columns()


def decode_parts(
    data: Buffer,
    *,
    from_offset: int = 0,
    bytes_max: int,
    partition: TopicPartition | None = None,
) -> Iterator[RecordColumns]:
    """Yields them in parts of at most `bytes_max` of records each, or of one batch."""
    scratch = RecordScratch()
    for part in locate_parts(
        data, scratch, from_offset=from_offset, bytes_max=bytes_max, partition=partition
    ):
        yield part.columns()


def _few_records(
    keys: pa.BinaryArray, values: pa.BinaryArray, times: Int64Array, headers: bytes | pa.BinaryArray
) -> memoryview:
    """Returns the same section as `encode_records`. For few rows, calls on columns take longer than
    their bytes."""
    section = bytearray()
    sets = [headers] * len(keys) if isinstance(headers, bytes) else headers.to_pylist()
    rows = zip(keys.to_pylist(), values.to_pylist(), times.tolist(), sets, strict=True)
    for index, (key, value, time_ms, encoded) in enumerate(rows):
        parts = [b"\0", encode_varint(time_ms - int(times[0])), encode_varint(index)]
        for field in (key, value):
            parts += [encode_varint(-1 if field is None else len(field)), field or b""]
        record = b"".join([*parts, encoded])
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
    sizes = lengths_or_minus_one(keys).clip(0) + lengths_or_minus_one(values).clip(0)
    sizes += _header_bytes(headers)
    longest = (int(sizes.max()) + 30, int(np.ptp(times)), len(keys), int(sizes.max()))
    overhead = 1 + sum(len(encode_varint(number)) for number in (*longest, longest[-1]))
    ends = np.cumsum(sizes + overhead)
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
