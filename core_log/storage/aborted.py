"""Which transactions of a segment were aborted, in Kafka's transaction index (version 0)."""

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
"""In place of how much was written: the whole file is to become another one."""


class AbortedTransaction(NamedTuple):
    """One producer's aborted stretch of a partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int
    """Everything below was decided once this one was."""


class AbortedIndex:
    """The aborted transactions whose markers lie in one segment, in the order of the markers."""

    __slots__ = ("_entries", "_file", "_files", "_path", "_written", "has_new_name")

    def __init__(self, files: Files, path: Path, *, is_new: bool) -> None:
        self._files, self._path = files, path
        self._file: File | None = None
        self._entries: list[AbortedTransaction] | None = [] if is_new else None
        self._written = 0
        self.has_new_name = False
        """Whether its file is younger than the last sync of the directory; set back by others."""

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
                    break  # zeros that a power cut left where nothing had been promised
                entries.append(entry)
            self._entries, self._written = entries, len(content)
        return self._entries

    @property
    def is_damaged(self) -> bool:
        """Whether the file contradicts itself, so that its entries have to be found anew."""
        try:
            return self.entries is None
        except CorruptLog:
            return True

    def add(self, aborted: AbortedTransaction) -> None:
        self.entries.append(aborted)

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """Starts again with these, in memory; `flush` puts them in place, all at once."""
        self._entries, self._written = list(entries), NOTHING_COUNTS

    def truncate(self, end_offset: int) -> None:
        """Forgets markers at or after `end_offset`. What stays is not touched: it may be all that
        tells of a promise, and the power may go at any moment."""
        kept = [entry for entry in self.entries if entry.last_offset < end_offset]
        self._entries = kept
        if self._written > len(kept) * ENTRY.size:
            self._written = len(kept) * ENTRY.size
            self._open().truncate(self._written)

    def flush(self) -> File | None:
        """Writes what is new; the file to be synced, if there was anything."""
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
        """Gives back the descriptor; the entries stay, they are few."""
        self._file = None

    def _open(self) -> File:
        if self._file is None:
            self.has_new_name = self.has_new_name or not self._files.exists(self._path)
            self._file = self._files.open(self._path, create=True)
        return self._file


def _pack(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)
