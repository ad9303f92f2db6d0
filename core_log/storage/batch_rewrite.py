"""Rewrites batches without some of their records; offsets and order stay the same."""

from collections.abc import Iterator
from struct import Struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.records.batch_header import (
    CHECKED_FROM,
    COMPRESSION_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    BatchHeader,
)
from headwater.core_log.records.compression import Buffer, compress
from headwater.core_log.records.record_headers import NOTHING, slices_between
from headwater.core_log.records.varint import varint_lengths, write_varints
from headwater.core_log.storage.batch_filter import CleaningDecision
from headwater.core_log.storage.segment_chunks import ChunkRecords, ChunkRows, SegmentChunk

_CHECKSUM = Struct(">I")
_NO_TIMESTAMP = -1


def rewritten_batches(
    chunk: SegmentChunk, verdict: CleaningDecision, *, horizon_ms: int
) -> Iterator[tuple[int, BatchHeader, Buffer]]:
    """Yields row, header and bytes of every batch that loses records or gets a delete horizon."""
    for records, keep in verdict.record_masks:
        for with_horizon in (False, True):
            chosen = verdict.is_rewritten & (verdict.gets_horizon == with_horizon)
            indices = np.flatnonzero(chosen[records.rows])
            if not len(indices):
                continue
            horizon = horizon_ms if with_horizon else None
            taken = keep & chosen[records.rows][records.fields.section]
            sections = _cut_sections(chunk, records, taken, indices, horizon)
            newest = _newest_times(chunk, records, taken, indices)
            for index, section, newest_ms in zip(indices.tolist(), sections, newest, strict=True):
                row = int(records.rows[index])
                count = int(verdict.kept_counts[row])
                head = _head(chunk.header(row), count, newest_ms, horizon)
                yield row, *_seal(head, section)


def empty_batch(header: BatchHeader) -> tuple[BatchHeader, Buffer]:
    """Returns only the header, which holds the offsets, the sequences and the producer."""
    head = header._replace(
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON),
        base_timestamp=_NO_TIMESTAMP,
        record_count=0,
    )
    return _seal(head, b"")


def _cut_sections(
    chunk: SegmentChunk,
    records: ChunkRecords,
    taken: BoolArray,
    indices: ChunkRows,
    horizon_ms: int | None,
) -> Iterator[memoryview]:
    """Returns the kept records of each of these batches, one after another."""
    rows = np.flatnonzero(taken)
    fields = records.fields
    data = pa.py_buffer(records.data)
    if horizon_ms is None:
        kept = _slices(data, fields.starts[rows], fields.ends[rows])
    else:
        kept = _retime(chunk, records, rows, data, horizon_ms)
    bounds = np.frombuffer(kept.buffers()[1], np.int32)
    joined = memoryview(kept.buffers()[2])
    counts = np.bincount(fields.section[rows], minlength=len(records.rows))[indices]
    ends = np.cumsum(counts)
    for begin, end in zip((ends - counts).tolist(), ends.tolist(), strict=True):
        yield joined[bounds[begin] : bounds[end]]


def _slices(data: pa.Buffer, starts: Int64Array, ends: Int64Array) -> pa.BinaryArray:
    record_masks = slices_between(np.stack((starts, ends), axis=1).ravel(), data)
    return record_masks.take(pa.array(np.arange(0, len(record_masks), 2)))


def _retime(
    chunk: SegmentChunk, records: ChunkRecords, rows: ChunkRows, data: pa.Buffer, horizon_ms: int
) -> pa.BinaryArray:
    """Returns records with timestamps relative to the delete horizon, which replaces the base
    timestamp."""
    fields = records.fields
    base = chunk.column("base_timestamp")[records.rows][fields.section[rows]]
    deltas = base + fields.timestamp_deltas[rows] - horizon_ms
    rest = fields.ends[rows] - fields.timestamp_ends[rows]
    attributes: Int64Array = np.zeros_like(deltas)
    heads = write_varints(1 + varint_lengths(deltas) + rest, attributes, deltas)
    tails = _slices(data, fields.timestamp_ends[rows], fields.ends[rows])
    return pc.binary_join_element_wise(heads, tails, NOTHING)


def _newest_times(
    chunk: SegmentChunk, records: ChunkRecords, taken: BoolArray, indices: ChunkRows
) -> list[int]:
    rows = np.flatnonzero(taken)
    section = records.fields.section[rows]
    base = chunk.column("base_timestamp")[records.rows]
    times = base[section] + records.fields.timestamp_deltas[rows]
    first = np.searchsorted(section, indices)
    newest: list[int] = np.maximum.reduceat(times, first).tolist()
    return newest


def _head(
    header: BatchHeader, record_count: int, newest_ms: int, horizon_ms: int | None
) -> BatchHeader:
    if not header.attributes & LOG_APPEND_TIME:
        header = header._replace(max_timestamp=newest_ms)
    if horizon_ms is not None:
        attributes = header.attributes | DELETE_HORIZON
        header = header._replace(attributes=attributes, base_timestamp=horizon_ms)
    return header._replace(record_count=record_count)


def _seal(head: BatchHeader, section: Buffer) -> tuple[BatchHeader, Buffer]:
    payload = compress(head.compression, section)
    head = head._replace(length=HEADER_BYTES - LENGTH_END + len(payload))
    batch = bytearray().join((head.pack(), payload))
    checksum = crc32c(memoryview(batch)[CHECKED_FROM:])
    _CHECKSUM.pack_into(batch, CHECKED_FROM - _CHECKSUM.size, checksum)
    return head._replace(checksum=checksum), batch
