"""A partition written by hand, compacted by the worker's code, and what must be true of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    encode_marker,
)
from headwater.core_log.storage.compaction import (
    CompactionRequest,
    CompactionResult,
    LastRecord,
    SegmentFacts,
)
from headwater.core_log.storage.compaction_worker import Compaction
from headwater.core_log.storage.index import AbortedIndex, AbortedTransaction
from headwater.core_log.storage.key_digests import KeyDigests
from headwater.core_log.storage.segment import ABORTED, INDEX, LOG, TIMES, file_name
from headwater.core_log.storage.swap import base_offsets, commit_swap, finish_swap
from tests.fakes import MemoryFiles

DIRECTORY = Path("/data/log/orders-0")
START_MS = 1_000_000
RETENTION_MS = 100
ACTIVE_PRODUCERS = (0, 1)
DIGESTS = KeyDigests(b"the same in all.")


class Stored(NamedTuple):
    """A batch as it was appended."""

    base_offset: int
    producer_id: int
    marker: bool | None
    records: tuple[PlainRecord, ...]


class Visible(NamedTuple):
    """A committed record, as a reader that skips aborted ones gets it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


Batch = tuple[BatchHeader, list[PlainRecord]]


@dataclass(slots=True)
class CompactedPartition:
    """Files in memory beside the whole history of what was appended to them."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    now_ms: int = START_MS
    end_offset: int = 0
    first_dirty_offset: int = 0
    cleaned_to: int = 0
    deletes_dropped_to: int = 0
    history: list[Stored] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    last_data: dict[int, tuple[int, int]] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    horizons: dict[int, int] = field(default_factory=dict)
    segment_base: int = 0

    def append(
        self, records: Iterable[PlainRecord], *, producer_id: int = -1, compression: int = 0
    ) -> None:
        """With a producer the batch belongs to its transaction."""
        stamped = [
            record._replace(timestamp_ms=self.now_ms - place % 3)
            for place, record in enumerate(records)
        ]
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = encode_batch(
            stamped,
            base_offset=self.end_offset,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=producer_id >= 0,
        )
        base, header = self.end_offset, BatchHeader.read(batch)
        placed = tuple(record._replace(offset=base + i) for i, record in enumerate(stamped))
        self.history.append(Stored(base, producer_id, None, placed))
        if producer_id >= 0:
            self.open.setdefault(producer_id, base)
            self.sequences[producer_id] = sequence + len(stamped)
            self.last_data[producer_id] = (header.last_offset, sequence)
        self._write(batch)

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = encode_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self.now_ms,
            base_offset=self.end_offset,
        )
        offset, first = self.end_offset, self.open.pop(producer_id, None)
        self.history.append(Stored(offset, producer_id, commit, ()))
        self._write(marker)
        if first is not None and not commit:
            stable = min(self.open.values(), default=offset + 1)
            aborted = AbortedTransaction(producer_id, first, offset, stable)
            self.aborted.append(aborted)
            index = AbortedIndex(self.files, self._path(self.segment_base, ABORTED), is_new=False)
            index.add(aborted)
            index.flush()

    def roll(self) -> None:
        self.segment_base = self.end_offset

    def compact(self, *, memory_bytes_max: int = 1 << 20, segment_bytes: int = 1 << 20) -> bool:
        """Everything in closed segments below the last stable offset; whether there was any."""
        result = self.run_worker(memory_bytes_max=memory_bytes_max, segment_bytes=segment_bytes)
        if result is None:
            return False
        before = self.batches()
        self.cleaned_to = max(self.cleaned_to, result.cleaned_to)
        self.deletes_dropped_to = max(self.deletes_dropped_to, result.deletes_dropped_to)
        for swap in result.swaps:
            commit_swap(self.files, DIRECTORY, swap.base_offset, swap.end_offset)
            for path in finish_swap(self.files, DIRECTORY, swap.base_offset, swap.end_offset):
                self.files.remove(path)
        self.first_dirty_offset = result.first_dirty_offset
        self.note_horizons(before)
        return True

    def run_worker(self, *, memory_bytes_max: int, segment_bytes: int) -> CompactionResult | None:
        request = self.request(memory_bytes_max=memory_bytes_max, segment_bytes=segment_bytes)
        if request is None:
            return None
        return Compaction(request, self.files, DIGESTS).run()

    def request(self, *, memory_bytes_max: int, segment_bytes: int) -> CompactionRequest | None:
        bases = self.bases()
        ends = [*bases[1:], self.end_offset][: len(bases)]
        stable = min(self.open.values(), default=self.end_offset)
        closed = [base for base, end in zip(bases, ends, strict=True) if end <= stable]
        closed = [base for base in closed if base < self.segment_base]
        end_offset = min([*(base for base in bases if base not in closed), self.segment_base])
        if not closed or end_offset <= self.first_dirty_offset:
            return None
        facts = [
            SegmentFacts(base, self.files.size(self._path(base, LOG)), self.now_ms, START_MS)
            for base in closed
        ]
        return CompactionRequest(
            directory=str(DIRECTORY),
            segments=tuple(facts),
            first_dirty_offset=self.first_dirty_offset,
            end_offset=end_offset,
            now_ms=self.now_ms,
            delete_retention_ms=RETENTION_MS,
            segment_bytes=segment_bytes,
            index_bytes=1 << 20,
            index_interval_bytes=64,
            aborted=tuple(self._stored_aborted(end_offset)),
            last_records={pid: LastRecord(0, last) for pid, (last, _) in self.active()},
            memory_bytes_max=memory_bytes_max,
        )

    def active(self) -> list[tuple[int, tuple[int, int]]]:
        """Producers whose last offset and sequence must be kept; the others have expired."""
        return [item for item in self.last_data.items() if item[0] in ACTIVE_PRODUCERS]

    def note_horizons(self, before: list[Batch]) -> None:
        """When each tombstone, and each marker that stands alone, was first cleaned."""
        running: set[int] = set()
        for header, records in before:
            if header.base_offset >= self.first_dirty_offset:
                return
            if header.is_control:
                if header.producer_id not in running:
                    self.horizons.setdefault(header.base_offset, self.now_ms + RETENTION_MS)
                running.discard(header.producer_id)
            elif header.is_transactional:
                running.add(header.producer_id)
            for record in records:
                if record.value is None:
                    self.horizons.setdefault(record.offset, self.now_ms + RETENTION_MS)

    def is_past_horizon(self, offset: int) -> bool:
        return offset in self.horizons and self.horizons[offset] <= self.now_ms

    def segment_ends(self) -> list[int]:
        """Where the last batch of each segment ends."""
        heads = [header for header, _ in self.batches()]
        ends = [*self.bases()[1:], self.end_offset]
        return [
            max((head.next_offset for head in heads if head.base_offset < end), default=-1)
            for end in ends[: len(self.bases())]
        ]

    def bases(self) -> list[int]:
        return base_offsets(self.files.names(DIRECTORY))

    def batches(self) -> list[Batch]:
        """What is stored now."""
        found = []
        for base in self.bases():
            content, position = self.files.read(self._path(base, LOG)), 0
            while position < len(content):
                head = BatchHeader.read(content[position : position + HEADER_BYTES])
                found.append(decode_batch(content[position : position + head.total_bytes]))
                position += head.total_bytes
        return found

    def stored(self) -> list[Visible]:
        """What a reader of committed records gets, by the rules of every Kafka client."""
        aborted = sorted(self._stored_aborted(self.end_offset), key=lambda each: each.first_offset)
        skipped: set[int] = set()
        found = []
        for header, records in self.batches():
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                for record in records:
                    if record.key == b"\0\0\0\0":
                        skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                found += [Visible(r.offset, r.key, r.value, r.timestamp_ms) for r in records]
        return found

    def appended(self) -> list[Visible]:
        """What the same reader would have got, had nothing been compacted."""
        gone = {
            stored.base_offset
            for aborted in self.aborted
            for stored in self.history
            if stored.producer_id == aborted.producer_id
            and aborted.first_offset <= stored.base_offset <= aborted.last_offset
        }
        kept = (stored for stored in self.history if stored.base_offset not in gone)
        return [
            Visible(record.offset, record.key, record.value, record.timestamp_ms)
            for stored in kept
            for record in stored.records
        ]

    def _stored_aborted(self, below: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for base in self.bases():
            path = self._path(base, ABORTED)
            found += AbortedIndex(self.files, path, is_new=False).entries
        return [aborted for aborted in found if aborted.first_offset < below]

    def _write(self, batch: bytearray) -> None:
        file = self.files.open(self._path(self.segment_base, LOG), create=True)
        file.write(file.size(), batch)
        for suffix in (INDEX, TIMES):
            self.files.open(self._path(self.segment_base, suffix), create=True)
        self.end_offset = BatchHeader.read(batch).next_offset

    def _path(self, base: int, suffix: str) -> Path:
        return DIRECTORY / file_name(base, suffix)


def fold(records: Iterable[Visible], into: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """The newest value of every key; a null value removes it, a record without a key is nothing."""
    table = dict(into or {})
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
