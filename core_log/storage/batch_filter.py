"""Decides chunk by chunk which records and batch headers survive a compaction, by Kafka's rules,
and rewrites batches without the others."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.batch_header import (
    CHECKED_FROM,
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
)
from headwater.core_log.records.compression import Buffer, compress
from headwater.core_log.records.record_codec import decode_varint
from headwater.core_log.records.record_headers import NOTHING, slices_between
from headwater.core_log.records.varint import varint_lengths, write_varints
from headwater.core_log.storage.compaction import LastRecord
from headwater.core_log.storage.index import NO_TIMESTAMP, AbortedTransaction
from headwater.core_log.storage.key_digests import KeyDigests, NewestOffsets
from headwater.core_log.storage.segment_chunks import (
    ChunkRecords,
    ChunkRows,
    SegmentChunk,
    pick_records,
    read_readable,
)

_ABORT, _COMMIT = 0, 1
_CHECKSUM = Struct(">I")


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    has_batches: bool = False
    """Some batch of it was read. All its batches are removed now, so its marker may be removed next
    time."""


class TransactionTrail:
    """The transactions of a partition; batches must come in offset order, without gaps."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.still_needed: list[AbortedTransaction] = []
        """Aborted transactions with batches before the marker."""

    def discardable(self, chunk: SegmentChunk) -> npt.NDArray[np.bool_]:
        """Returns the rows of aborted transactions, and markers without any batch."""
        discard = np.zeros(len(chunk.heads), dtype=np.bool_)
        attributes = chunk.column("attributes")
        rows = np.flatnonzero(attributes & (TRANSACTIONAL | CONTROL))
        columns = (attributes, chunk.column("producer_id"), chunk.last_offsets)
        indices = (column[rows].tolist() for column in columns)
        for row, bits, producer_id, last_offset in zip(rows.tolist(), *indices, strict=True):
            self._begin(last_offset)
            if bits & CONTROL:
                discard[row] = self._end(producer_id, _control_type(chunk, row))
            else:
                discard[row] = self._is_aborted(producer_id)
        return discard

    def _begin(self, last_offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= last_offset:
            transaction = self._coming.pop()
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))

    def _is_aborted(self, producer_id: int) -> bool:
        aborted = self._aborted.get(producer_id)
        if aborted is None:
            self._committed.add(producer_id)
            return False
        aborted.has_batches = True
        return True

    def _end(self, producer_id: int, control_type: int | None) -> bool:
        if control_type is None:
            return True  # its records were removed before
        if control_type == _ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or not aborted.has_batches:
                return True
            self.still_needed.append(aborted.transaction)
            return False
        if control_type == _COMMIT:
            had_batches = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_batches
        return False


def _control_type(chunk: SegmentChunk, row: int) -> int | None:
    """Returns the type of the batch's only record, from its key: two bytes of version, two of
    type."""
    if not chunk.heads["record_count"][row]:
        return None
    try:
        section = bytes(chunk.records(row))
        _, position = decode_varint(section, 0)
        _, position = decode_varint(section, position + 1)
        _, position = decode_varint(section, position)
        length, position = decode_varint(section, position)
    except DecodeError as error:
        raise chunk.damage(row, str(error)) from error
    if length < 4 or position + 4 > len(section):
        raise chunk.damage(row, "control record has no type")
    return int.from_bytes(section[position + 2 : position + 4])


class RecordStarts:
    """Record positions from the first pass, kept for the second as far as memory allows."""

    def __init__(self, bytes_max: int) -> None:
        self._room = bytes_max
        self._known: dict[tuple[str, int], tuple[ChunkRows, ChunkRows]] = {}

    def keep(self, chunk: SegmentChunk, records: ChunkRecords) -> None:
        starts = records.fields.starts
        if records.data is chunk.data and 4 * len(starts) <= self._room:
            self._room -= 4 * len(starts)
            self._known[chunk.file, chunk.position] = (records.rows, starts.astype(np.uint32))

    def take(self, chunk: SegmentChunk, rows: ChunkRows) -> Int64Array | None:
        """Returns where every record of these rows begins, if exactly these were read."""
        known = self._known.pop((chunk.file, chunk.position), None)
        if known is None or not np.array_equal(known[0], rows):
            return None
        starts: Int64Array = known[1].astype(np.int64)
        return starts


@dataclass(slots=True)
class CleaningStats:
    """Counts of a pass."""

    records: int = 0
    records_kept: int = 0
    tombstones_dropped: int = 0
    deletes_dropped_to: int = 0
    """No tombstone at or above this offset was dropped for its age."""
    markers_dropped: int = 0


@dataclass(frozen=True, slots=True)
class CleaningDecision:
    """The fate of each batch of a chunk, and the kept records of rewritten batches."""

    is_kept: BoolArray
    """The batch stays byte for byte."""
    is_emptied: BoolArray
    """Only the header stays."""
    is_rewritten: BoolArray
    gets_horizon: BoolArray
    kept_counts: Int64Array
    record_masks: list[tuple[ChunkRecords, BoolArray]] = field(default_factory=list)


class BatchFilter:
    """One pass over a partition from its start; chunks must come in order, without gaps."""

    def __init__(
        self,
        newest: NewestOffsets,
        digests: KeyDigests,
        trail: TransactionTrail,
        *,
        first_dirty_offset: int,
        end_offset: int,
        now_ms: int,
        last_records: Mapping[int, LastRecord],
        starts: RecordStarts,
        unreadable: set[int],
    ) -> None:
        self._newest, self._digests, self._trail = newest, digests, trail
        self._first_dirty, self._end, self._now_ms = first_dirty_offset, end_offset, now_ms
        self._surviving = newest.surviving()
        self._last_records, self._starts = last_records, starts
        self._unreadable = unreadable
        offsets = [last.last_data_offset for last in last_records.values()]
        self._last_data = np.array([each for each in offsets if each is not None], dtype=np.int64)
        self.tally = CleaningStats()

    def judge(self, chunk: SegmentChunk, *, is_last: bool) -> CleaningDecision:
        """Returns the decision. With `is_last` the last batch keeps its header, which marks the end
        of the cleaned part. Unreadable batches stay unchanged."""
        attributes, counts = chunk.column("attributes"), chunk.column("record_count")
        is_control = (attributes & CONTROL) != 0
        horizons = np.where(attributes & DELETE_HORIZON, chunk.column("base_timestamp"), -1)
        is_past = (horizons >= 0) & (horizons <= self._now_ms)
        is_covered = chunk.column("base_offset") < self._end  # the rest is left for another pass
        discard = self._trail.discardable(chunk) & is_covered
        is_dropped = discard & (~is_control | is_past)
        gets_horizon = discard & is_control & (horizons < 0)
        is_read = is_covered & ~is_dropped & (counts > 0) & (~is_control | gets_horizon)
        self.tally.markers_dropped += int((is_dropped & is_control & (counts > 0)).sum())
        kept_counts = np.where(is_dropped, 0, counts)
        record_masks = []
        for records in self._read_records(chunk, np.flatnonzero(is_read)):
            rows, section = records.rows, records.fields.section
            keep, is_tombstone = self._keep(records, is_control[rows], is_past[rows])
            kept_counts[rows] = np.bincount(section[keep], minlength=len(rows))
            gets_horizon[rows[section[keep & is_tombstone]]] = True
            record_masks.append((records, keep))
        gets_horizon &= (horizons < 0) & (kept_counts > 0)
        self.tally.records += int(counts[~is_control].sum())
        self.tally.records_kept += int(kept_counts[~is_control].sum())
        is_empty = (kept_counts == 0) & is_covered
        stays_empty = is_empty & self._carries_state(chunk, is_control)
        stays_empty[-1] |= is_last and bool(is_empty[-1])
        is_rewritten = ~is_empty & ((kept_counts < counts) | gets_horizon)
        return CleaningDecision(
            is_kept=~is_empty & ~is_rewritten,
            is_emptied=stays_empty,
            is_rewritten=is_rewritten,
            gets_horizon=gets_horizon,
            kept_counts=kept_counts,
            record_masks=record_masks,
        )

    def _read_records(self, chunk: SegmentChunk, rows: ChunkRows) -> Iterable[ChunkRecords]:
        """Yields the records to judge: where the first pass has been, only those it found to be
        newest."""
        starts = self._starts.take(chunk, rows)
        if starts is not None:
            low, high = np.searchsorted(self._surviving, chunk.offset_range)
            picked = pick_records(chunk, rows, starts, self._surviving[low:high])
            if picked is not None:
                return (picked,)
        return read_readable(chunk, rows, self._unreadable)

    def _keep(
        self, records: ChunkRecords, is_control: BoolArray, is_past: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Returns which records stay, and which are tombstones."""
        fields, offsets = records.fields, records.offsets
        marker = is_control[fields.section] if is_control.any() else np.zeros_like(offsets, bool)
        is_tombstone = (fields.value_lengths < 0) & ~marker
        keep = self._is_newest(records)
        too_old = is_past[fields.section] & is_tombstone
        dropped = keep & too_old
        if dropped.any():
            self.tally.tombstones_dropped += int(dropped.sum())
            last = int(offsets[dropped].max())
            self.tally.deletes_dropped_to = max(self.tally.deletes_dropped_to, last + 1)
        return (keep & ~too_old) | marker, is_tombstone

    def _is_newest(self, records: ChunkRecords) -> BoolArray:
        """In the dirty part: whether the map has exactly this offset. Below it: whether no newer
        offset exists."""
        offsets, fields = records.offsets, records.fields
        newest = np.zeros(len(offsets), dtype=np.bool_)
        begin = int(np.searchsorted(offsets, self._first_dirty))
        if begin < len(offsets):
            dirty = offsets[begin:]
            low, high = np.searchsorted(self._surviving, (dirty[0], dirty[-1] + 1))
            survivors = self._surviving[low:high]
            newest[begin + np.searchsorted(dirty, survivors)] = True
        if begin:
            keyed = np.flatnonzero(fields.key_lengths[:begin] >= 0)
            keys = (fields.key_starts[keyed], fields.key_lengths[keyed])
            digests = self._digests.of(np.frombuffer(records.data, np.uint8), *keys)
            newest[keyed] = ~self._newest.knows(digests)
        return newest

    def _carries_state(self, chunk: SegmentChunk, is_control: BoolArray) -> BoolArray:
        """Whether a batch is the newest of its producer: its header has sequence and epoch."""
        carries = np.zeros(len(chunk.heads), dtype=np.bool_)
        producer_ids, last_offsets = chunk.column("producer_id"), chunk.last_offsets
        if not self._last_records:
            return carries
        candidates = is_control | np.isin(last_offsets, self._last_data)
        for row in np.flatnonzero(candidates & (producer_ids >= 0)).tolist():
            last = self._last_records.get(int(producer_ids[row]))
            if last is None:
                continue
            if last.last_data_offset is None:
                epoch = int(chunk.heads["producer_epoch"][row])
                carries[row] = bool(is_control[row]) and epoch == last.epoch
            else:
                carries[row] = int(last_offsets[row]) == last.last_data_offset
        return carries


def runs(flags: BoolArray) -> Iterator[tuple[int, int]]:
    """Returns runs of true rows as ranges."""
    edges: ChunkRows = np.flatnonzero(
        np.diff(np.concatenate(([False], flags, [False])).astype(np.int8))
    )
    pairs: Any = edges.reshape(-1, 2).tolist()
    yield from (tuple(pair) for pair in pairs)


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
        base_timestamp=NO_TIMESTAMP,
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
