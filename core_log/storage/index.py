"""The indexes of one segment: from an offset or a time to a position in its file, and its aborted
transactions."""

import errno
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.storage.files import File, Files, write_all

OFFSET_ENTRY = struct.Struct(">ii")  # offset relative to the segment's base, position in its file
TIME_ENTRY = struct.Struct(
    ">qi"
)  # the largest timestamp so far, and the relative end offset of its batch
NO_TIMESTAMP = -1
FLUSH_BYTES = 1024
"""Bytes of entries that wait in memory; entries lost in a crash are found again from batch
headers."""

ABORTED_ENTRY = struct.Struct(">hqqqq")
ABORTED_VERSION = 0
NOTHING_COUNTS = -1
"""Instead of the flushed size: the whole file of aborted transactions is to be replaced."""


class IndexFile:
    """Fixed-size entries in Kafka's format, the same in memory and on disk, sorted by every
    column."""

    __slots__ = ("_content", "_entry", "_file", "_files", "_path", "_written", "is_unsynced")

    def __init__(self, files: Files, path: Path, entry: struct.Struct, *, is_new: bool) -> None:
        self._files, self._path, self._entry = files, path, entry
        self._file: File | None = None
        self._content: bytearray | None = bytearray() if is_new else None
        self._written = 0
        self.is_unsynced = False

    @property
    def path(self) -> Path:
        return self._path

    @property
    def content(self) -> bytearray:
        """The entries, read at the first use; a missing file is an empty index."""
        content = self._content
        if content is None:
            content = bytearray()
            with suppress(FileNotFoundError):
                content += self._files.read(self._path)
            self._written = len(content)
            # Kafka leaves zeros after the entries of a segment that it has not closed.
            entries = -(-len(content.rstrip(b"\0")) // self._entry.size)
            del content[entries * self._entry.size :]
            self._content = content
        return content

    @property
    def count(self) -> int:
        return len(self.content) // self._entry.size

    def entry(self, number: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(self.content, number * self._entry.size)
        return first, second

    def add(self, first: int, second: int) -> None:
        content = self.content
        try:
            content += self._entry.pack(first, second)
        # a writer ends a segment in time; so the file that was read is damaged
        except struct.error:
            problem = "offset is too far from the base of its segment"
            raise CorruptLog(problem, file=str(self._path)) from None
        if len(content) - self._written >= FLUSH_BYTES:
            with suppress(OSError):  # the log decides; the next flush writes this, too
                self.flush()

    def floor(self, column: int, value: int) -> int:
        """Returns the number of the last entry that is not above `value` in that column; -1 if all
        are."""
        content, size, unpack = self.content, self._entry.size, self._entry.unpack_from
        low, high = 0, len(content) // size
        while low < high:
            middle = (low + high) >> 1
            if unpack(content, middle * size)[column] <= value:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def keep(self, count: int) -> None:
        """Removes all entries but the first `count`, in memory and in the file."""
        content = self.content
        del content[count * self._entry.size :]
        self.flush()

    def flush(self) -> None:
        """Writes the entries from memory to the file, unsynced."""
        content = self._content
        if content is None or self._written == len(content):
            return
        if self._file is None:
            self._file = self._files.open(self._path, create=True)
        if self._written > len(content):
            self._file.truncate(len(content))
        else:
            write_all(self._file, self._written, memoryview(content)[self._written :])
        self._written = len(content)
        self.is_unsynced = True

    def file_to_sync(self) -> File | None:
        """Returns the file if it was written since the last call."""
        self.flush()
        was_unsynced, self.is_unsynced = self.is_unsynced, False
        return self._file if was_unsynced else None

    def sync(self) -> None:
        file = self.file_to_sync()
        if file is not None:
            file.sync()

    def release(self) -> None:
        """Frees the memory and closes the file; the next use reads it again."""
        if self._content is not None and self._written != len(self._content):
            raise OSError(errno.EBUSY, "index has entries that are not in its file yet")
        self._content, self._file = None, None


class OffsetIndex:
    """An entry every few kilobytes: the last offset of a batch, and where that batch begins."""

    __slots__ = ("base_offset", "file")

    def __init__(self, file: IndexFile, base_offset: int) -> None:
        self.file, self.base_offset = file, base_offset

    def add(self, last_offset: int, position: int) -> None:
        self.file.add(last_offset - self.base_offset, position)

    def last(self) -> tuple[int, int] | None:
        """Offset and position of the newest entry."""
        return self._at(self.file.count - 1)

    def before_offset(self, offset: int) -> tuple[int, int] | None:
        """Returns the nearest entry whose batch ends at or before `offset`."""
        return self._at(self.file.floor(0, offset - self.base_offset))

    def before_position(self, position: int) -> tuple[int, int] | None:
        """Returns the last entry whose batch begins at or before `position`."""
        return self._at(self.file.floor(1, position))

    def _at(self, number: int) -> tuple[int, int] | None:
        if number < 0:
            return None
        relative, position = self.file.entry(number)
        return self.base_offset + relative, position

    def truncate(self, size: int) -> None:
        """Keeps the entries of batches that begin before `size`."""
        self.file.keep(self.file.floor(1, size - 1) + 1)

    def truncate_below(self, offset: int) -> None:
        """Keeps the entries of batches that end before `offset`."""
        self.file.keep(self.file.floor(0, offset - 1 - self.base_offset) + 1)


class TimeIndex:
    """The largest timestamp up to a batch, entered only when it has grown."""

    __slots__ = ("base_offset", "file")

    def __init__(self, file: IndexFile, base_offset: int) -> None:
        self.file, self.base_offset = file, base_offset

    def add(self, timestamp: int, offset: int) -> None:
        count = self.file.count
        if timestamp > (self.file.entry(count - 1)[0] if count else NO_TIMESTAMP):
            self.file.add(timestamp, offset - self.base_offset)

    def last(self) -> tuple[int, int]:
        """The largest entered timestamp, and its offset."""
        return self._at(self.file.count - 1)

    def _at(self, number: int) -> tuple[int, int]:
        if number < 0:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = self.file.entry(number)
        return timestamp, self.base_offset + relative

    def before_timestamp(self, timestamp: int) -> tuple[int, int]:
        """Returns timestamp and offset of an entry: no batch that ends before that offset has a
        record at or after `timestamp`.

        The entry has an earlier time: among batches with an equal time, a damaged entry might not
        be the first.
        """
        return self._at(self.file.floor(0, timestamp - 1))

    def before_offset(self, offset: int) -> tuple[int, int]:
        """Returns the largest timestamp entered for batches before `offset`, and its offset."""
        return self._at(self.file.floor(1, offset - 1 - self.base_offset))

    def truncate(self, end_offset: int) -> None:
        """Keeps the entries of offsets below `end_offset`."""
        self.file.keep(self.file.floor(1, end_offset - 1 - self.base_offset) + 1)


class AbortedTransaction(NamedTuple):
    """The records of one producer's aborted transaction in a partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int
    """When the transaction ended, everything below this offset was decided."""


class AbortedIndex:
    """The aborted transactions whose markers are in one segment, in the order of the markers:
    Kafka's transaction index."""

    __slots__ = ("_entries", "_file", "_files", "_path", "_written", "has_new_name")

    def __init__(self, files: Files, path: Path, *, is_new: bool) -> None:
        self._files, self._path = files, path
        self._file: File | None = None
        self._entries: list[AbortedTransaction] | None = [] if is_new else None
        self._written = 0
        self.has_new_name = False
        """Whether the file is newer than the last sync of the directory; the caller resets it."""

    @property
    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            content = b""
            with suppress(FileNotFoundError):
                content = self._files.read(self._path)
            whole = len(content) // ABORTED_ENTRY.size * ABORTED_ENTRY.size
            entries: list[AbortedTransaction] = []
            for position in range(0, whole, ABORTED_ENTRY.size):
                version, *row = ABORTED_ENTRY.unpack_from(content, position)
                entry = AbortedTransaction._make(row)
                last = entries[-1].last_offset if entries else -1
                if (
                    version != ABORTED_VERSION
                    or not max(entry.first_offset, last) < entry.last_offset
                ):
                    if any(content[position:]):
                        raise CorruptLog(
                            "transaction index contradicts itself", file=str(self._path)
                        )
                    break  # zeros that a power cut left, before anything was promised
                entries.append(entry)
            self._entries, self._written = entries, len(content)
        return self._entries

    @property
    def is_damaged(self) -> bool:
        """Whether the file contradicts itself, so that its entries must be found again."""
        try:
            return self.entries is None
        except CorruptLog:
            return True

    def add(self, aborted: AbortedTransaction) -> None:
        self.entries.append(aborted)

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """Replaces all entries in memory; `flush` replaces the file at once."""
        self._entries, self._written = list(entries), NOTHING_COUNTS

    def truncate(self, end_offset: int) -> None:
        """Removes entries of markers at or after `end_offset`. The rest of the file is not
        rewritten: it may be the only proof of a promise, and the power may fail at any moment."""
        kept = [entry for entry in self.entries if entry.last_offset < end_offset]
        self._entries = kept
        if self._written > len(kept) * ABORTED_ENTRY.size:
            self._written = len(kept) * ABORTED_ENTRY.size
            self._open().truncate(self._written)

    def flush(self) -> File | None:
        """Writes new entries; returns the file to be synced, if any."""
        if self._entries is None or self._written >= len(self._entries) * ABORTED_ENTRY.size:
            return None
        if self._written == NOTHING_COUNTS:
            self._put_in_place(self._entries)
            return None
        fresh = self._entries[self._written // ABORTED_ENTRY.size :]
        file = self._open()
        write_all(file, self._written, _pack(fresh))
        self._written = len(self._entries) * ABORTED_ENTRY.size
        return file

    def _put_in_place(self, entries: list[AbortedTransaction]) -> None:
        if entries or self._files.exists(self._path):
            self._files.replace(self._path, _pack(entries))
        self._file, self._written = None, len(entries) * ABORTED_ENTRY.size

    def release(self) -> None:
        """Closes the file; the few entries stay in memory."""
        self._file = None

    def _open(self) -> File:
        if self._file is None:
            self.has_new_name = self.has_new_name or not self._files.exists(self._path)
            self._file = self._files.open(self._path, create=True)
        return self._file


def _pack(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ABORTED_ENTRY.pack(ABORTED_VERSION, *entry) for entry in entries)
