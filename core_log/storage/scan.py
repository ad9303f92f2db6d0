"""Iterates over the batches of a log file: by headers where they are trusted, else by checksum."""

from collections.abc import Iterator
from typing import NamedTuple

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader, checksum_of
from headwater.core_log.storage.files import File

UNKNOWN = -1
MAGIC_AT = 16
MAGIC = b"\x02"
ATTRIBUTES_MAX = 0x7F
OFFSETS_MAX = 1 << 31
"""A segment spans fewer offsets than this, since its indexes have 31 bits for them."""

SMALL_BATCH_BYTES = 8 << 10
MANY_HEADS_BYTES = 64 << 10
FEW_HEADS_BYTES = 4 << 10
CHECK_BYTES = 1 << 20


class FileWindow:
    """Reads a file forward through one buffer."""

    __slots__ = ("_chunk", "_end", "_file", "_from", "ahead_bytes")

    def __init__(self, file: File, end: int, *, ahead_bytes: int) -> None:
        self._file, self._end, self.ahead_bytes = file, end, ahead_bytes
        self._chunk, self._from = memoryview(b""), 0

    def at(self, position: int, size: int) -> memoryview:
        """Returns `size` bytes, fewer only at the end."""
        begin = position - self._from
        if begin < 0 or begin + size > len(self._chunk):
            ahead = min(max(size, self.ahead_bytes), self._end - position)
            self._chunk = memoryview(self._file.read(position, ahead))
            self._from, begin = position, 0
        return self._chunk[begin : begin + size]


def heads(file: File, position: int, end: int, *, name: str) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of every batch in a trusted part; anything else is
    `CorruptLog`."""
    window, next_offset = FileWindow(file, end, ahead_bytes=FEW_HEADS_BYTES), UNKNOWN
    while position < end:
        head = window.at(position, HEADER_BYTES)
        header = BatchHeader.read(head) if len(head) == HEADER_BYTES else None
        following = position + header.total_bytes if header else end
        is_next = header is not None and header.is_plausible and header.base_offset >= next_offset
        if header is None or not is_next or following > end:
            raise CorruptLog(
                "batch does not begin at the expected position",
                file=name,
                position=position,
                size=end,
                offset=next_offset,
            )
        yield position, header
        next_offset = header.next_offset
        is_small = header.length < SMALL_BATCH_BYTES
        window.ahead_bytes = MANY_HEADS_BYTES if is_small else FEW_HEADS_BYTES
        position = following


class Damage(NamedTuple):
    """Where the batches of a file end, and what is wrong there."""

    position: int
    offset: int
    """The expected next offset."""
    reason: str


class CheckedBatches:
    """Iterates over whole batches with a valid checksum; afterwards it has the place and reason of
    the end."""

    def __init__(
        self, file: File, position: int, end: int, *, next_offset: int, may_skip: bool
    ) -> None:
        self._window = FileWindow(file, end, ahead_bytes=CHECK_BYTES)
        self._end, self._may_skip = end, may_skip
        self.position, self.next_offset = position, next_offset
        self.damage: Damage | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        while self.position < self._end:
            position = self.position
            head = self._window.at(position, HEADER_BYTES)
            header = BatchHeader.read(head) if len(head) == HEADER_BYTES else None
            reason = self._wrong_head(header)
            if header is None or reason:
                return self._stop(reason)
            batch = self._window.at(position, header.total_bytes)
            if checksum_of(batch) != header.checksum:
                return self._stop("batch fails its checksum")
            self.position += header.total_bytes
            self.next_offset = header.next_offset
            yield position, header, batch

    def _wrong_head(self, header: BatchHeader | None) -> str:
        if header is None:
            return "file ends inside the head of a batch"
        if not header.is_plausible:
            return "batch does not begin at the expected position"
        if self.position + header.total_bytes > self._end:
            return "file ends inside a batch"
        if header.base_offset < self.next_offset:
            return "batch repeats offsets"
        if header.base_offset > self.next_offset and not self._may_skip:
            return "batch skips offsets"
        return ""

    def _stop(self, reason: str) -> None:
        self.damage = Damage(self.position, self.next_offset, reason)


def is_zero(file: File, position: int, end: int) -> bool:
    """Whether a file has only zeros: space that was reserved and never written."""
    while position < end:
        chunk = file.read(position, min(CHECK_BYTES, end - position))
        if not chunk or chunk.count(0) != len(chunk):
            return not chunk
        position += len(chunk)
    return True


def find_batch(file: File, position: int, end: int, *, offset: int) -> int | None:
    """Returns the position of the first whole batch at or after `position` that could follow
    `offset`."""
    window = FileWindow(file, end, ahead_bytes=CHECK_BYTES)
    while position + HEADER_BYTES <= end:
        chunk = bytes(window.at(position, CHECK_BYTES))
        mark = chunk.find(MAGIC, MAGIC_AT)
        while mark >= 0 and mark - MAGIC_AT + HEADER_BYTES <= len(chunk):
            header = BatchHeader.read(chunk, mark - MAGIC_AT)
            begin = position + mark - MAGIC_AT
            if _could_follow(header, offset) and begin + header.total_bytes <= end:
                batch = file.read(begin, header.total_bytes)
                if checksum_of(batch) == header.checksum:
                    return begin
            mark = chunk.find(MAGIC, mark + 1)
        position += max(len(chunk) - HEADER_BYTES + 1, 1)
    return None


def _could_follow(header: BatchHeader, offset: int) -> bool:
    return (
        header.is_plausible
        and offset <= header.base_offset < offset + OFFSETS_MAX
        and 0 <= header.attributes <= ATTRIBUTES_MAX
        and 0 <= header.record_count <= header.last_offset_delta + 1
    )
