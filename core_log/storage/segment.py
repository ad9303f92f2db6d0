"""One segment of a partition: a file of batches from a base offset on, and its indexes."""

from collections.abc import Iterator
from pathlib import Path

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.storage.files import Bytes, File, FileRange, Files, write_all
from headwater.core_log.storage.index import (
    NO_TIMESTAMP,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedIndex,
    IndexFile,
    OffsetIndex,
    TimeIndex,
)
from headwater.core_log.storage.scan import heads

LOG, INDEX, TIMES, ABORTED = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG, INDEX, TIMES, ABORTED)
SNAPSHOT = ".snapshot"
"""The suffix of a file with the producer states at an offset."""
SNAPSHOT_SPACING_BYTES = 8 << 20
"""A recovery reads the headers of about twice this many bytes."""
KNOWN_POSITIONS_MAX = 256
FOREVER = 1 << 62


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class Segment:
    """A segment. Its size and indexes count only complete writes, even if the file is longer."""

    __slots__ = (
        "_end_offset",
        "_file",
        "_files",
        "_max_timestamp",
        "_positions",
        "aborted",
        "base_offset",
        "first_timestamp",
        "index",
        "index_interval",
        "indexed_at",
        "max_timestamp_offset",
        "path",
        "size",
        "times",
    )

    def __init__(
        self, files: Files, directory: Path, base_offset: int, *, index_interval: int, is_new: bool
    ) -> None:
        self._files, self.base_offset = files, base_offset
        self.path = directory / file_name(base_offset, LOG)
        self._file: File | None = None
        self._build_indexes(is_new=is_new)
        if is_new:
            for suffix in SUFFIXES:  # left by a segment whose creation failed
                files.remove(directory / file_name(base_offset, suffix))
            self._file = files.open(self.path, create=True)
        self.index_interval = index_interval
        self.size, self.indexed_at = 0, 0
        self.first_timestamp: int | None = None
        self._end_offset = base_offset
        self._max_timestamp: int | None = NO_TIMESTAMP if is_new else None
        self.max_timestamp_offset = base_offset
        self._positions: dict[int, int] = {}

    def _build_indexes(self, *, is_new: bool) -> None:
        def index_file(suffix: str) -> Path:
            return self.path.with_name(file_name(self.base_offset, suffix))

        offsets = IndexFile(self._files, index_file(INDEX), OFFSET_ENTRY, is_new=is_new)
        times = IndexFile(self._files, index_file(TIMES), TIME_ENTRY, is_new=is_new)
        self.index = OffsetIndex(offsets, self.base_offset)
        self.times = TimeIndex(times, self.base_offset)
        self.aborted = AbortedIndex(self._files, index_file(ABORTED), is_new=is_new)

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path)
        return self._file

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its batches; -1 if none has any."""
        if self._max_timestamp is None:
            self.adopt(self.size)
        assert self._max_timestamp is not None, "adopting an index settles the largest timestamp"
        return self._max_timestamp

    @property
    def end_offset(self) -> int:
        """The offset after its last batch."""
        if self._max_timestamp is None:
            self.adopt(self.size)
        return self._end_offset

    def search_from(self, timestamp: int) -> int:
        """Returns an offset: no batch that ends before it has a record at or after `timestamp`."""
        return self._confirm(self.times.before_timestamp(timestamp))[1]

    def _confirm(self, entry: tuple[int, int]) -> tuple[int, int]:
        """Returns a time index entry that the log confirms: the given one, or the base."""
        timestamp, offset = entry
        if timestamp != NO_TIMESTAMP:
            for _, header in self.heads(self.position_of(offset)):
                if header.last_offset == offset and header.max_timestamp == timestamp:
                    return entry
                break
            self.rebuild_indexes()
        return NO_TIMESTAMP, self.base_offset

    def newest_between(self, start_offset: int, below: int) -> int:
        """Returns the largest timestamp of the batches in that range, and reads as few as
        possible."""
        newest = self.max_timestamp
        if start_offset <= self.max_timestamp_offset < below:
            return newest
        newest, offset = self._confirm(self.times.before_offset(below))
        entry = self.index.before_offset(below - 1)
        if newest == NO_TIMESTAMP or offset < start_offset:
            newest, entry = NO_TIMESTAMP, self.index.before_offset(start_offset)
        for _, header in self._heads_from(entry):
            if header.base_offset >= below:
                break
            if header.last_offset >= start_offset:
                newest = max(newest, header.max_timestamp)
        return newest

    @property
    def newest_ms(self) -> int:
        """The time of its newest record, which retention uses; without one, of its last write."""
        newest = self.max_timestamp
        return newest if newest >= 0 else self._files.modified_ms(self.path)

    def append(self, data: Bytes, last_offset: int, max_timestamp: int) -> None:
        """Writes one whole batch at the end; after an `OSError` only the file may have changed."""
        position = self.size
        write_all(self.file, position, data)
        self.note(position, len(data), last_offset, max_timestamp)

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Counts a batch that is in the file at `position`, which is the end so far."""
        if max_timestamp > self.max_timestamp:
            self._max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if position - self.indexed_at > self.index_interval:
            self.index.add(last_offset, position)
            self.times.add(self.max_timestamp, self.max_timestamp_offset)
            self.indexed_at = position
        self.size, self._end_offset = position + size, last_offset + 1

    def adopt(
        self,
        end: int,
        *,
        below: int = FOREVER,
        trusted_to: int = FOREVER,
        may_skip: bool = True,
    ) -> int:
        """Takes over index files as far as the log confirms them, and adds missing entries.

        Returns the next offset. Afterwards `size` is where its batch begins: that of `below`, or
        `end`. Headers are trusted, so this is for data that is surely on disk. Index entries are
        trusted for batches below `trusted_to` only. Unless compaction `may_skip` offsets, a gap is
        damage.
        """
        self.index.truncate_below(min(below, trusted_to))
        entry = self.index.last()
        if trusted_to != FOREVER:
            self.times.truncate(min(below, trusted_to))
        try:
            next_offset = self._extend(entry, end, below, may_skip=may_skip)
            self._check_times(entry)
        except CorruptLog:  # of an index, unless the log itself is damaged
            return self._index_anew(end, below, may_skip=may_skip)
        except OSError:
            self.size, self._max_timestamp = end, None  # the next check begins again
            raise
        return next_offset

    def _check_times(self, entry: tuple[int, int] | None) -> None:
        """The first entry of one index comes with one of the other, unless no batch has a time."""
        newest = self.times.last()
        if (entry and newest[0] == NO_TIMESTAMP) or self._confirm(newest) != newest:
            raise CorruptLog("time index contradicts its log", file=str(self.path))

    def _extend(
        self, entry: tuple[int, int] | None, end: int, below: int, *, may_skip: bool = True
    ) -> int:
        self._max_timestamp, self.max_timestamp_offset = self.times.last()
        self.size = self.indexed_at = entry[1] if entry else 0
        self._end_offset = self.base_offset
        if below <= self.base_offset:
            return self.base_offset
        for position, header in self._heads_from(entry, end):
            if header.base_offset >= below:
                break
            is_first = entry is not None and position == entry[1]
            if not (may_skip or is_first) and header.base_offset != self._end_offset:
                raise CorruptLog("offsets are missing", file=str(self.path), position=position)
            self.note(position, header.total_bytes, header.last_offset, header.max_timestamp)
            if header.next_offset >= below:  # the bytes that follow need not be a batch
                break
        return self._end_offset

    def _start_indexes(self) -> None:
        self.index.file.keep(0)
        self.times.file.keep(0)
        self._max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.size = self.indexed_at = 0

    def cut(self, position: int, end_offset: int) -> None:
        """Truncates the file at `position`, where the batch of `end_offset` begins."""
        self.file.truncate(position)
        self._positions.clear()
        self.adopt(position, below=end_offset, trusted_to=end_offset)
        self.aborted.truncate(end_offset)
        if position == 0:
            self.first_timestamp = None
        elif self.first_timestamp is None:  # a restart does not know this of old segments
            self.first_timestamp = next(self.heads())[1].max_timestamp

    def room_for_entries(self, index_bytes: int) -> int:
        """Returns how many entries the fuller of the two indexes still takes; one is kept for
        sealing."""
        entries = index_bytes // TIME_ENTRY.size - 1
        return entries - max(self.index.file.count, self.times.file.count)

    def seal(self) -> list[File]:
        """Completes and writes the indexes, because no batch will follow; returns the files to be
        synced."""
        if self.size and self.max_timestamp != NO_TIMESTAMP:
            self.times.add(self.max_timestamp, self.max_timestamp_offset)
        return self.flush_indexes()

    def flush_indexes(self) -> list[File]:
        """Writes the index files from memory; returns those to be synced."""
        files = [
            self.times.file.file_to_sync(),
            self.index.file.file_to_sync(),
            self.aborted.flush(),
        ]
        return [file for file in files if file is not None]

    def release(self) -> None:
        """Closes what can be opened again; running readers keep their file."""
        try:
            self.flush_indexes()
        except OSError:  # the disk is full: entries that cannot be written stay in memory
            return
        self._file = None
        self.index.file.release()
        self.times.file.release()
        self.aborted.release()
        self._positions.clear()

    def heads(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        return heads(self.file, position, self.size if end is None else end, name=str(self.path))

    def remember(self, offset: int, position: int) -> None:
        """Saves the next reader of `offset` the search: readers continue where they stopped."""
        positions = self._positions
        if len(positions) >= KNOWN_POSITIONS_MAX:
            positions.clear()
        positions[offset] = position

    def position_of(self, offset: int) -> int:
        """Returns where the first batch begins that ends at or after `offset`; the size if none
        does."""
        position = self._positions.get(offset)
        if position is None:
            try:
                position = self._search(offset)
            except CorruptLog:  # of the index, unless the loop below finds it too
                self.rebuild_indexes()
                position = self._search(offset)
            self.remember(offset, position)
        return position

    def _search(self, offset: int) -> int:
        for position, header in self._heads_from(self.index.before_offset(offset)):
            if header.last_offset >= offset:
                return position
        return self.size

    def _heads_from(
        self, entry: tuple[int, int] | None, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yields batches from an index entry on. The entry is used only if the log confirms it."""
        start, end = entry[1] if entry else 0, self.size if end is None else end
        if entry and start >= end:
            raise CorruptLog("index reaches beyond its log", file=str(self.path), position=start)
        for position, header in self.heads(start, end):
            if entry and position == start and header.last_offset != entry[0]:
                raise CorruptLog("index contradicts its log", file=str(self.path), position=start)
            yield position, header

    def rebuild_indexes(self) -> None:
        """Rebuilds the offset and time indexes from the headers of all batches."""
        self._index_anew(self.size, FOREVER)

    def _index_anew(self, end: int, below: int, *, may_skip: bool = True) -> int:
        self._start_indexes()
        try:
            return self._extend(None, end, below, may_skip=may_skip)
        except (CorruptLog, OSError):
            self.size, self._max_timestamp = end, None  # the next reader must find it again
            raise

    def read(
        self, offset: int, *, limit: int, limit_offset: int, bytes_max: int, at_least_one: bool
    ) -> FileRange | None:
        """Returns whole batches from `offset` on, up to `limit`, where the one of `limit_offset`
        begins."""
        position = self.position_of(offset)
        if position >= limit:
            return None
        if limit - position <= bytes_max:
            self.remember(limit_offset, limit)
            return FileRange(self.file, position, limit - position, offset, limit_offset)
        try:
            end = self._last_end(position, min(position + bytes_max, limit))
        except CorruptLog:  # of the index, unless the loop below finds it too
            self.rebuild_indexes()
            end = self._last_end(position, min(position + bytes_max, limit))
        if end == position:
            if not at_least_one:
                return None
            end += BatchHeader.read(self.file.read(position, HEADER_BYTES)).total_bytes
        next_offset = self._offset_at(end, limit, limit_offset)
        self.remember(next_offset, end)
        return FileRange(self.file, position, end - position, offset, next_offset)

    def _last_end(self, position: int, end_max: int) -> int:
        """Returns the end of the last batch that ends by `end_max`, or `position` if the first does
        not."""
        entry = self.index.before_position(end_max)
        if entry is None or entry[1] <= position:
            steps = self.heads(position)
        else:
            steps = self._heads_from(entry)
        for begin, header in steps:
            if begin + header.total_bytes > end_max:
                return begin
        return self.size

    def _offset_at(self, position: int, limit: int, limit_offset: int) -> int:
        if position >= limit:
            return limit_offset
        return BatchHeader.read(self.file.read(position, HEADER_BYTES)).base_offset
