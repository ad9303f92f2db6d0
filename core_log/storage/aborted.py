"""The aborted transactions of a segment, in Kafka's transaction index (version 0)."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.storage.files import File, Files, write_all

ENTRY = Struct(">hqqqq")
VERSION = 0
NOTHING_COUNTS = -1
"""Instead of the flushed size: the whole file is to be replaced."""


class AbortedTransaction(NamedTuple):
    """The records of one producer's aborted transaction in a partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int
    """When the transaction ended, everything below this offset was decided."""


class AbortedIndex:
    """The aborted transactions whose markers are in one segment, in the order of the markers."""

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
            whole = len(content) // ENTRY.size * ENTRY.size
            entries: list[AbortedTransaction] = []
            for position in range(0, whole, ENTRY.size):
                version, *row = ENTRY.unpack_from(content, position)
                entry = AbortedTransaction._make(row)
                last = entries[-1].last_offset if entries else -1
                if version != VERSION or not max(entry.first_offset, last) < entry.last_offset:
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
        if self._written > len(kept) * ENTRY.size:
            self._written = len(kept) * ENTRY.size
            self._open().truncate(self._written)

    def flush(self) -> File | None:
        """Writes new entries; returns the file to be synced, if any."""
        if self._entries is None or self._written >= len(self._entries) * ENTRY.size:
            return None
        if self._written == NOTHING_COUNTS:
            self._put_in_place(self._entries)
            return None
        fresh = self._entries[self._written // ENTRY.size :]
        file = self._open()
        write_all(file, self._written, _pack(fresh))
        self._written = len(self._entries) * ENTRY.size
        return file

    def _put_in_place(self, entries: list[AbortedTransaction]) -> None:
        if entries or self._files.exists(self._path):
            self._files.replace(self._path, _pack(entries))
        self._file, self._written = None, len(entries) * ENTRY.size

    def release(self) -> None:
        """Closes the file; the few entries stay in memory."""
        self._file = None

    def _open(self) -> File:
        if self._file is None:
            self.has_new_name = self.has_new_name or not self._files.exists(self._path)
            self._file = self._files.open(self._path, create=True)
        return self._file


def _pack(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)
