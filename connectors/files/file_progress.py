"""The progress in each file, and the check whether a file is still the one that was read."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum

from crc32c import crc32c

from headwater.connectors.files.contents import CHUNK_BYTES, FileContent
from headwater.connectors.files.storage import FileEntry
from headwater.core_log.foundation.errors import PositionLost

PART = "file/"
HEAD_BYTES = 1 << 10
TAIL_BYTES = 256
LINE_ENDS = (b"", b"\n", b"\r")


@dataclass(frozen=True, slots=True)
class FileState:
    """How much of one file is in the log. Positions count decompressed bytes, rows include rejected
    lines, and checksums are CRC-32C."""

    identity: str = ""
    size: int = 0
    modified_us: int = 0
    """Modification time when the file was last opened."""
    position: int = 0
    rows: int = 0
    lines: int = 0
    """Number of line ends, as editors count them: including the header's and those inside of
    values."""
    crc: int = 0
    """Checksum of all bytes read."""
    head: int = 0
    """Checksum of the first of them, at most a kilobyte."""
    tail: int = 0
    tail_bytes: int = 0
    """Checksum of the last of them, and their number."""
    is_open: bool = False
    """Whether the last line was read without a line end."""
    is_repeat: bool = False
    """Whether the next rows were, or may have been, in the file before it was rewritten."""
    is_done: bool = False
    """Whether everything was read that was there when the file was last opened."""
    problem: str = ""
    """The reason why its rest was rejected."""
    moved_to: str = ""
    """The new name, if it was renamed and no other file has this name."""

    def to_text(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({name: value for name, value in values.items() if value})

    @classmethod
    def from_text(cls, text: str) -> "FileState":
        known = {field.name for field in fields(cls)}
        try:
            document = json.loads(text)
            if not isinstance(document, dict) or document.keys() - known:
                raise ValueError("the text is not a state")
            return cls(**document)
        except (ValueError, TypeError) as error:
            raise PositionLost(
                "a stored position was not written by the files source",
                hint="headwater offsets reset PIPELINE reads the files again from their beginning",
            ) from error

    def open(self, entry: FileEntry) -> "FileState":
        return replace(
            self,
            identity=entry.identity,
            size=entry.size,
            modified_us=entry.modified_us,
            is_done=False,
            moved_to="",
        )

    def advance(self, block: bytes, rows: int, *, is_open: bool = False) -> "FileState":
        """Returns the state after another range of bytes."""
        head_left = max(0, HEAD_BYTES - self.position)
        tail = block[-TAIL_BYTES:]
        return replace(
            self,
            position=self.position + len(block),
            rows=self.rows + rows,
            lines=self.lines + block.count(b"\n"),
            crc=crc32c(block, self.crc),
            head=crc32c(block[:head_left], self.head) if head_left else self.head,
            tail=crc32c(tail) if tail else self.tail,
            tail_bytes=len(tail) or self.tail_bytes,
            is_open=is_open,
        )

    def again(self, *, is_repeat: bool) -> "FileState":
        """Returns the state of the same file from its start."""
        return FileState(self.identity, self.size, self.modified_us, is_repeat=is_repeat)

    def is_as_listed(self, entry: FileEntry) -> bool:
        return (self.identity, self.size, self.modified_us) == (
            entry.identity,
            entry.size,
            entry.modified_us,
        )


class FileChange(Enum):
    """The change of a file of which a part was read."""

    SAME = "reading goes on where it stopped"
    SHORTER = "the file was cut and begins again"
    REWRITTEN = "the rows that were read have changed"


def verdict(
    state: FileState, entry: FileEntry, content: FileContent, *, is_plain: bool
) -> FileChange:
    """Returns the change. For a file that grew in place both ends are compared; a replaced or
    touched file is read again."""
    if state.is_as_listed(entry):
        return FileChange.SAME
    is_in_place = entry.identity == state.identity
    if is_plain and entry.size < state.position:
        return FileChange.SHORTER if is_in_place else FileChange.REWRITTEN
    grew = is_in_place and entry.size > state.size
    is_same = ends_match(state, content) if grew else whole_matches(state, content)
    if is_same and state.is_open and content.read(state.position, 1) not in LINE_ENDS:
        is_same = False  # the line that was read as whole has grown
    return FileChange.SAME if is_same else FileChange.REWRITTEN


def ends_match(state: FileState, content: FileContent) -> bool:
    head_bytes = min(state.position, HEAD_BYTES)
    head = content.read(0, head_bytes)
    if len(head) < head_bytes or crc32c(head) != state.head:
        return False
    tail = content.read(state.position - state.tail_bytes, state.tail_bytes)
    return len(tail) == state.tail_bytes and crc32c(tail) == state.tail


def whole_matches(state: FileState, content: FileContent) -> bool:
    crc, position = 0, 0
    while position < state.position:
        chunk = content.read(position, min(CHUNK_BYTES, state.position - position))
        if not chunk:
            return False
        crc, position = crc32c(chunk, crc), position + len(chunk)
    return crc == state.crc


@dataclass(frozen=True, slots=True)
class RenamedFile:
    """`entry` is the file that had the name `old_name` when it was last read."""

    old_name: str
    entry: FileEntry


def find_renamed(
    entries: Iterable[FileEntry], states: Mapping[str, FileState]
) -> list[RenamedFile]:
    """Returns files that have another name than when they were read, by their identity; their
    content is still to be compared. Several names can have one identity: deleted files whose
    inode was used again."""
    listed = {entry.name: entry for entry in entries}
    homeless: dict[str, list[str]] = {}
    for name, state in states.items():
        is_there = name in listed and listed[name].identity == state.identity
        if state.position + state.rows and not state.moved_to and not is_there:
            homeless.setdefault(state.identity, []).append(name)
    return [
        RenamedFile(name, entry)
        for entry in listed.values()
        for name in homeless.get(entry.identity, ())
        if name != entry.name
    ]
