"""A segment that compaction writes, and its swap for the segments it is made from: completely or
not at all."""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from headwater.core_log.storage.files import Bytes, Files, write_all
from headwater.core_log.storage.index import (
    NO_TIMESTAMP,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedIndex,
    AbortedTransaction,
    IndexFile,
    OffsetIndex,
    TimeIndex,
)
from headwater.core_log.storage.segment import ABORTED, INDEX, LOG, SUFFIXES, TIMES, file_name

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
UNFINISHED = (CLEANED, DELETED, ".tmp")
"""Files that an opening removes: they belong to work that cannot continue."""
DIGITS = 20
_FLUSH_BYTES = 8 << 20


def cleaned_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """Returns where compaction writes a new segment's file."""
    return directory / (file_name(base_offset, suffix) + CLEANED)


def cleaned_paths(directory: Path, base_offset: int) -> list[Path]:
    """Returns all files that compaction may have written for one segment."""
    return [cleaned_path(directory, base_offset, suffix) for suffix in SUFFIXES]


def commit_swap(files: Files, directory: Path, base_offset: int, end_offset: int) -> None:
    """Decides that the cleaned segment replaces all segments starting in [base, end).

    Its files are complete and synced. One rename decides; `finish_swap` may be repeated after it.
    """
    files.sync_directory(directory)
    target = directory / f"{base_offset:0{DIGITS}d}-{end_offset:0{DIGITS}d}{SWAP}"
    files.rename(cleaned_path(directory, base_offset, LOG), target)
    files.sync_directory(directory)


def finish_swap(files: Files, directory: Path, base_offset: int, end_offset: int) -> list[Path]:
    """Gives the cleaned files their names, the log's own last; the caller removes the replaced
    ones."""
    replaced = [
        file_name(base, suffix)
        for base in base_offsets(files.names(directory))
        if base_offset <= base < end_offset
        for suffix in reversed(SUFFIXES)  # while the log has its name, the rest is found again
    ]
    aside = set_aside(files, directory, replaced)
    for suffix in (INDEX, TIMES, ABORTED):
        cleaned = cleaned_path(directory, base_offset, suffix)
        if files.exists(cleaned):
            files.rename(cleaned, directory / file_name(base_offset, suffix))
    swap = directory / f"{base_offset:0{DIGITS}d}-{end_offset:0{DIGITS}d}{SWAP}"
    files.rename(swap, directory / file_name(base_offset, LOG))
    files.sync_directory(directory)
    return aside


def finish_swaps(files: Files, directory: Path) -> None:
    """Completes swaps that a crash interrupted after the decision."""
    for name in files.names(directory):
        first, _, second = name.removesuffix(SWAP).partition("-")
        if name.endswith(SWAP) and first.isdigit() and second.isdigit():
            for path in finish_swap(files, directory, int(first), int(second)):
                files.remove(path)


def set_aside(files: Files, directory: Path, names: Iterable[str]) -> list[Path]:
    """Renames files that are to be removed: renaming is quick, removing large files is not."""
    aside = []
    for name in names:
        path = directory / name
        if files.exists(path):
            target = path.with_name(name + DELETED)
            files.rename(path, target)
            aside.append(target)
    return aside


def base_offsets(names: Iterable[str]) -> list[int]:
    """Returns the base offsets of the segments in a directory, oldest first."""
    stems = (name.removesuffix(LOG) for name in names if name.endswith(LOG))
    return sorted(int(stem) for stem in stems if stem.isdigit() and len(stem) == DIGITS)


class CleanedSegment:
    """A new segment, written once from start to end and then synced."""

    def __init__(
        self, files: Files, directory: Path, base_offset: int, *, index_interval: int
    ) -> None:
        def path(suffix: str) -> Path:
            return cleaned_path(directory, base_offset, suffix)

        self._files, self._paths = files, [path(suffix) for suffix in SUFFIXES]
        for leftover in self._paths:
            files.remove(leftover)
        self._file = files.open(path(LOG), create=True)
        self._index_file = IndexFile(files, path(INDEX), OFFSET_ENTRY, is_new=True)
        self._times_file = IndexFile(files, path(TIMES), TIME_ENTRY, is_new=True)
        self._index = OffsetIndex(self._index_file, base_offset)
        self._times = TimeIndex(self._times_file, base_offset)
        self._aborted = AbortedIndex(files, path(ABORTED), is_new=True)
        self._interval, self._indexed_at = index_interval, 0
        self._writer = ThreadPoolExecutor(1)  # while it writes, the next batches are filtered
        self._writing: Future[None] | None = None
        self._pending: list[Bytes] = []
        self._pending_bytes = self._written = 0
        self._newest_ms, self._newest_offset = NO_TIMESTAMP, base_offset

    @property
    def size(self) -> int:
        return self._written + self._pending_bytes

    def add(self, data: Bytes, batches: Iterable[tuple[int, int, int]]) -> None:
        """Appends whole batches, with length, last offset and largest timestamp of each."""
        position = self.size
        for length, last_offset, max_timestamp in batches:
            if max_timestamp > self._newest_ms:
                self._newest_ms, self._newest_offset = max_timestamp, last_offset
            if position - self._indexed_at > self._interval:
                self._index.add(last_offset, position)
                self._times.add(self._newest_ms, self._newest_offset)
                self._indexed_at = position
            position += length
        self._pending.append(data)
        self._pending_bytes += len(data)
        assert position == self.size, "the batches are what the bytes hold"
        if self._pending_bytes >= _FLUSH_BYTES:
            self._write()

    def finish(self, aborted: Iterable[AbortedTransaction]) -> int:
        """Syncs all files, except their names; returns the segment's size."""
        self._write()
        self._settle()
        self._writer.shutdown()
        if self._written:
            self._times.add(self._newest_ms, self._newest_offset)
        self._aborted.replace(aborted)
        self._aborted.flush()
        self._index_file.flush()
        self._times_file.flush()
        for path in self._paths:  # all four files exist, so that each old one is replaced
            self._files.open(path, create=True).sync()
        return self._written

    def _write(self) -> None:
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._settle()
        self._writing = self._writer.submit(write_all, self._file, self._written, data)
        self._written += len(data)
        self._pending, self._pending_bytes = [], 0

    def _settle(self) -> None:
        """Waits for the running write and raises its error."""
        if self._writing is not None:
            self._writing.result()
