"""Compacts closed segments of one partition in a process of its own: columns in, files out."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import TypeVar

import numpy as np

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.records.batch_header import CONTROL
from headwater.core_log.storage.batch_filter import (
    BatchFilter,
    CleaningDecision,
    CleaningStats,
    RecordStarts,
    TransactionTrail,
    empty_batch,
    rewritten_batches,
    runs,
)
from headwater.core_log.storage.compaction import (
    CompactionRequest,
    CompactionResult,
    SegmentFacts,
    Swap,
    encode_failure,
    encode_result,
    group_segments,
)
from headwater.core_log.storage.files import Bytes, Files, OsFiles
from headwater.core_log.storage.key_digests import ENTRY_BYTES_MAX, KeyDigests, NewestOffsets
from headwater.core_log.storage.segment import LOG, file_name
from headwater.core_log.storage.segment_chunks import (
    ChunkRows,
    SegmentChunk,
    read_chunks,
    read_readable,
)
from headwater.core_log.storage.swap import CleanedSegment

NICE = 10
BLOCK_RECORDS = 1 << 15
STARTS_BYTES_MAX = 64 << 20


class Compaction:
    """A compaction in two passes: first the newest offset of every key in the dirty part, then all
    records."""

    def __init__(
        self, request: CompactionRequest, files: Files, digests: KeyDigests | None = None
    ) -> None:
        self._request, self._files = request, files
        self._directory = Path(request.directory)
        self._digests = digests or KeyDigests()
        span = request.end_offset - request.first_dirty_offset
        self.newest = NewestOffsets(min(request.memory_bytes_max // ENTRY_BYTES_MAX, span))
        self._starts = RecordStarts(STARTS_BYTES_MAX)
        self._noted_to = 0
        self._unreadable: set[int] = set()

    def run(self) -> CompactionResult:
        request = self._request
        end_offset = self._map_keys()
        if end_offset <= request.first_dirty_offset:
            raise HeadwaterError(
                "batch has more keys than fit into the memory for compaction",
                directory=request.directory,
                offset=request.first_dirty_offset,
                memory_bytes_max=request.memory_bytes_max,
            )
        taken = [segment for segment in request.segments if segment.base_offset < end_offset]
        swaps, tally = self._write_segments(taken, end_offset)
        return CompactionResult(
            swaps=swaps,
            first_dirty_offset=end_offset,
            cleaned_to=max(end_offset, self._noted_to),
            deletes_dropped_to=tally.deletes_dropped_to,
            keys=self.newest.count,
            records=tally.records,
            records_kept=tally.records_kept,
            tombstones_dropped=tally.tombstones_dropped,
            markers_dropped=tally.markers_dropped,
            unreadable=tuple(sorted(self._unreadable)),
            bytes_before=sum(segment.size for segment in taken),
            bytes_after=sum(swap.size for swap in swaps),
            map_bytes=self.newest.size_bytes,
        )

    def _map_keys(self) -> int:
        """Reads the dirty part, or as much as memory allows; returns where it ended."""
        request, first_dirty = self._request, self._request.first_dirty_offset
        read_from = next(
            segment.base_offset
            for segment, end in zip(request.segments, request.ends(), strict=True)
            if end > first_dirty
        )
        # one that ended before would take the producer's next transactions for its own
        trail = TransactionTrail(each for each in request.aborted if each.last_offset >= read_from)
        for segment, end in zip(request.segments, request.ends(), strict=True):
            if end <= first_dirty:
                continue
            for chunk in self._chunks(segment):
                discard = trail.discardable(chunk)
                is_control = (chunk.column("attributes") & CONTROL) != 0
                is_dirty = chunk.column("base_offset") >= first_dirty
                wanted = ~discard & ~is_control & is_dirty & (chunk.column("record_count") > 0)
                stopped_at = self._put_keys(chunk, np.flatnonzero(wanted))
                if stopped_at is not None:
                    return stopped_at
        return request.end_offset

    def _put_keys(self, chunk: SegmentChunk, rows: ChunkRows) -> int | None:
        """Returns the start of the first batch whose keys do not all fit into memory; None if all
        do."""
        for records in read_readable(chunk, rows, self._unreadable):
            fields, data = records.fields, np.frombuffer(records.data, np.uint8)
            self._starts.keep(chunk, records)
            chosen = np.flatnonzero(fields.key_lengths >= 0)
            for begin in range(0, len(chosen), BLOCK_RECORDS):
                block = chosen[begin : begin + BLOCK_RECORDS]
                keys = (fields.key_starts[block], fields.key_lengths[block])
                taken = self.newest.put(self._digests.of(data, *keys), records.offsets[block])
                if taken:
                    self._noted_to = int(records.offsets[block[taken - 1]]) + 1
                if taken < len(block):
                    row = records.rows[fields.section[block[taken]]]
                    return int(chunk.heads["base_offset"][row])
        return None

    def _write_segments(
        self, taken: list[SegmentFacts], end_offset: int
    ) -> tuple[tuple[Swap, ...], CleaningStats]:
        """Second pass: writes the kept records into as few segments as they fit into."""
        request, trail = self._request, TransactionTrail(self._request.aborted)
        judge = BatchFilter(
            self.newest,
            self._digests,
            trail,
            first_dirty_offset=request.first_dirty_offset,
            end_offset=end_offset,
            now_ms=request.now_ms,
            last_records=request.last_records,
            starts=self._starts,
            unreadable=self._unreadable,
        )
        ends = dict(
            zip((each.base_offset for each in request.segments), request.ends(), strict=True)
        )
        groups = group_segments(
            taken,
            end_offset=ends[taken[-1].base_offset],
            segment_bytes=request.segment_bytes,
            index_bytes=request.index_bytes,
        )
        last = next((each for each in reversed(taken) if each.size), None)
        swaps = [
            Swap(
                group[0].base_offset,
                ends[group[-1].base_offset],
                self._write_segment(group, judge, trail, last),
            )
            for group in groups
        ]
        self._files.sync_directory(self._directory)
        return tuple(swaps), judge.tally

    def _chunks(self, segment: SegmentFacts) -> Iterator[SegmentChunk]:
        path = self._directory / file_name(segment.base_offset, LOG)
        file, base = self._files.open(path), segment.base_offset
        return read_ahead(read_chunks(file, segment.size, name=str(path), base_offset=base))

    def _write_segment(
        self,
        group: list[SegmentFacts],
        judge: BatchFilter,
        trail: TransactionTrail,
        last: SegmentFacts | None,
    ) -> int:
        """`last` is the batch that marks the end of the cleaned part, and keeps its header."""
        request, trail.still_needed = self._request, []
        cleaned = CleanedSegment(
            self._files,
            self._directory,
            group[0].base_offset,
            index_interval=request.index_interval_bytes,
        )
        horizon_ms = request.now_ms + request.delete_retention_ms
        for segment in group:
            for chunk in self._chunks(segment):
                is_end = chunk.position + len(chunk.data) == segment.size
                verdict = judge.judge(chunk, is_last=is_end and segment is last)
                for data, batches in surviving_batches(chunk, verdict, horizon_ms=horizon_ms):
                    cleaned.add(data, batches)
        return cleaned.finish(trail.still_needed)


def surviving_batches(
    chunk: SegmentChunk, verdict: CleaningDecision, *, horizon_ms: int
) -> Iterator[tuple[Bytes, list[tuple[int, int, int]]]]:
    """Yields the kept part of a chunk in order: bytes, with length, last offset and time of each
    batch."""
    fresh = {
        row: (head, data)
        for row, head, data in rewritten_batches(chunk, verdict, horizon_ms=horizon_ms)
    }
    for row in np.flatnonzero(verdict.is_emptied).tolist():
        fresh[row] = empty_batch(chunk.header(row))
    lengths = (chunk.ends - chunk.starts).tolist()
    last_offsets, times = chunk.last_offsets.tolist(), chunk.column("max_timestamp").tolist()
    pieces: list[tuple[int, Bytes, list[tuple[int, int, int]]]] = []
    for begin, end in runs(verdict.is_kept):
        untouched = chunk.data[chunk.starts[begin] : chunk.ends[end - 1]]
        rows = slice(begin, end)
        batches = list(zip(lengths[rows], last_offsets[rows], times[rows], strict=True))
        pieces.append((begin, untouched, batches))
    for row, (head, data) in fresh.items():
        pieces.append((row, data, [(len(data), head.last_offset, head.max_timestamp)]))
    for _, data, batches in sorted(pieces, key=lambda piece: piece[0]):
        yield data, batches


def main() -> int:
    """Reads one request from standard input and writes its result to standard output."""
    line = sys.stdin.buffer.readline()
    # `sys.stdin` is not used: a thread that holds its lock aborts the interpreter when it ends.
    _end_with_parent(lambda: os.read(0, 1))
    os.nice(NICE)
    try:
        answer = encode_result(Compaction(CompactionRequest.from_json(line), OsFiles()).run())
    except HeadwaterError as error:
        answer = encode_failure(error)
    sys.stdout.buffer.write(answer)
    return 0


def _end_with_parent(wait: Callable[[], bytes]) -> None:
    """Ends this process with its parent: nobody would swap in the files written after that."""

    def watch() -> None:
        wait()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


T = TypeVar("T")

AHEAD = 2


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Returns the same items, which a thread makes a few ahead of their use.

    Reading, checksums and large array operations release the interpreter lock, so on two cores both
    threads run at once. The thread ends when the iterator ends or is closed.
    """
    made: Queue[T | _End] = Queue(AHEAD)
    is_wanted = True

    def make() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                made.put(item)
                if not is_wanted:
                    return
        except BaseException as caught:  # the error belongs to the consumer
            error = caught
        made.put(_End(error))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        is_wanted = False
        while thread.is_alive():
            while not made.empty():
                made.get_nowait()
            thread.join(0.001)


if __name__ == "__main__":
    sys.exit(main())
