"""Small text files with offsets, in Kafka's checkpoint format."""

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.storage.files import File, Files, write_all

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED_TO = "cleaned-to-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
DELETES_DROPPED_TO = "deletes-dropped-to-offset-checkpoint"
FIRST_DIRTY = "cleaner-offset-checkpoint"
"""Kafka's own file. It is behind `CLEANED_TO` while a compaction takes effect: work that was
announced and not done before a crash must be repeated, or old values would outlive their
tombstones."""

VERSION = 0
OFFSET_DIGITS = 20
COUNT_DIGITS = 10
COUNT_AT = 2  # after "0\n"
SECTOR_BYTES = 512
"""A disk writes a sector completely or not at all, so no number may cross a sector's end."""


def read_checkpoint(files: Files, path: Path, *, columns: int) -> list[list[str]]:
    """Returns the rows of a checkpoint; none if the file does not exist yet."""
    try:
        lines = files.read(path).decode(errors="replace").split("\n")
    except FileNotFoundError:
        return []
    rows = [line.split() for line in lines[2:] if line]
    is_cut = lines[-1] != ""
    if lines[0].strip() != str(VERSION) or is_cut or any(len(row) != columns for row in rows):
        raise DecodeError("the file is not a checkpoint file", file=str(path))
    with suppress(ValueError, IndexError):
        if int(lines[1]) == len(rows):
            return rows
    raise DecodeError("checkpoint file does not hold what it counts", file=str(path))


def write_checkpoint(files: Files, path: Path, rows: Sequence[Sequence[object]]) -> None:
    """Replaces a whole checkpoint; it is on disk on return."""
    files.replace(path, encode_checkpoint(rows))


def encode_checkpoint(rows: Sequence[Sequence[object]]) -> bytes:
    lines = [str(VERSION), str(len(rows)), *(" ".join(map(str, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


class OffsetCheckpoint:
    """One offset per partition in one file, each at a fixed position.

    Numbers have a fixed width, so that a group commit updates one of them by one small write,
    however many partitions there are. Kafka can read the file.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files, self._path = files, path
        self._file: File | None = None
        self._offsets: dict[tuple[str, int], int] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._size = 0
        self.is_missing = self.is_damaged = False
        """The content of the file is lost."""
        self._load()

    def _load(self) -> None:
        """Reads every complete line; the last one may be torn, and the count may be too low."""
        try:
            version, *lines = self._files.read(self._path).split(b"\n")
        except FileNotFoundError:
            self.is_missing = True
            return
        is_torn = False
        for line in lines[1:-1]:
            try:
                topic, partition, offset = line.decode().split()
                self._offsets[topic, int(partition)] = int(offset)
                self.is_damaged = self.is_damaged or is_torn
            except ValueError:
                is_torn = True
        is_unknown = version.strip() != str(VERSION).encode()
        self.is_damaged = self.is_damaged or is_unknown or (is_torn and not self._offsets)

    def __iter__(self) -> Iterator[tuple[tuple[str, int], int]]:
        return iter(self._offsets.items())

    def get(self, topic: str, partition: int) -> int | None:
        return self._offsets.get((topic, partition))

    def set(self, topic: str, partition: int, offset: int) -> None:
        """Writes one offset, unsynced; only the first one of a partition is on disk on return."""
        key = (topic, partition)
        known = self._offsets.get(key)
        if self._file is None:
            self._rewrite({**self._offsets, key: offset})
        elif key not in self._positions:
            self._append(self._file, key, offset)
        elif known != offset:
            write_all(self._file, self._positions[key], _digits(offset))
            if known is None:
                self.sync()
        self._offsets[key] = offset

    def begin(self, keys: Sequence[tuple[str, int]]) -> None:
        """Writes 0 for new partitions, on disk on return. Many are written as one new file, so that
        a topic's partitions need not wait for the disk one by one."""
        if len(keys) > 1:
            self._rewrite({**self._offsets, **dict.fromkeys(keys, 0)})
        for key in keys:
            self.set(*key, 0)

    def has_place_for(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self._positions or (topic, partition) in self._offsets

    def remove(self, topic: str, partition: int) -> None:
        """Removes a partition, unsynced: its line has 0 until a partition of that name exists
        again."""
        key = (topic, partition)
        if self._file is None and key in self._offsets:
            self._offsets[key] = 0  # the former number is in the file as long as nothing is written
            return
        self._offsets.pop(key, None)
        if self._file is not None and key in self._positions:
            write_all(self._file, self._positions[key], _digits(0))

    def retain(self, keys: Container[tuple[str, int]]) -> None:
        """Removes all other partitions, on disk on return."""
        kept = {key: offset for key, offset in self._offsets.items() if key in keys}
        if len(kept) < len(self._offsets):
            self._rewrite(kept)

    def sync(self) -> None:
        """Syncs the file. After a failure a second sync proves nothing: the next number goes to a
        new file."""
        if self._file is not None:
            try:
                self._file.sync()
            except OSError:
                self._file = None
                raise

    def _append(self, file: File, key: tuple[str, int], offset: int) -> None:
        line, position = _line(self._size, key, offset)
        write_all(file, self._size, line)
        self._size += len(line)
        self._positions[key] = position
        write_all(file, COUNT_AT, f"{len(self._positions):0{COUNT_DIGITS}d}".encode())
        self.sync()  # so that a power cut can only tear the last line

    def _rewrite(self, offsets: dict[tuple[str, int], int]) -> None:
        content = bytearray(f"{VERSION}\n{len(offsets):0{COUNT_DIGITS}d}\n".encode())
        positions = {}
        for key, offset in offsets.items():
            line, positions[key] = _line(len(content), key, offset)
            content += line
        self._file = None  # after any failure from here on, no number is written to the old file
        self._files.replace(self._path, bytes(content))
        self._file = self._files.open(self._path)
        self._offsets, self._positions, self._size = dict(offsets), positions, len(content)


def _line(start: int, key: tuple[str, int], offset: int) -> tuple[bytes, int]:
    """Returns the line for the end of the file, padded so that its number is in one sector, and its
    position."""
    name = f"{key[0]} {key[1]} ".encode()
    position = start + len(name)
    room = SECTOR_BYTES - position % SECTOR_BYTES
    if room < OFFSET_DIGITS:
        name += b" " * room
        position += room
    return name + _digits(offset) + b"\n", position


def _digits(offset: int) -> bytes:
    return f"{offset:0{OFFSET_DIGITS}d}".encode()


class Checkpoints:
    """The checkpoints of a log directory for all its partitions."""

    def __init__(self, files: Files, directory: Path) -> None:
        self.recovery_points = OffsetCheckpoint(files, directory / RECOVERY_POINTS)
        self.log_starts = OffsetCheckpoint(files, directory / LOG_STARTS)
        self.high_watermarks = OffsetCheckpoint(files, directory / HIGH_WATERMARKS)
        self.cleaned_to = OffsetCheckpoint(files, directory / CLEANED_TO)
        self.deletes_dropped_to = OffsetCheckpoint(files, directory / DELETES_DROPPED_TO)
        self.first_dirty = OffsetCheckpoint(files, directory / FIRST_DIRTY)

    @property
    def _all(self) -> tuple[OffsetCheckpoint, ...]:
        return (
            self.recovery_points,
            self.log_starts,
            self.high_watermarks,
            self.cleaned_to,
            self.deletes_dropped_to,
            self.first_dirty,
        )

    def of(self, topic: str, partition: int) -> "PartitionMarks":
        return PartitionMarks(self, topic, partition)

    def begin(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Resets new partitions, whatever was known of older ones with their names.

        A stored 0 means that nothing is promised; a missing line means that it is not known.
        """
        for checkpoint in self._all:
            is_needed = checkpoint in (self.recovery_points, self.log_starts)
            checkpoint.begin(
                [each for each in partitions if is_needed or checkpoint.has_place_for(*each)]
            )

    def forget(self, topic: str, partition: int) -> None:
        for checkpoint in self._all:
            checkpoint.remove(topic, partition)

    def retain(self, keys: Container[tuple[str, int]]) -> None:
        """Removes partitions that no longer exist."""
        for checkpoint in self._all:
            checkpoint.retain(keys)


class PartitionMarks:
    """One partition's part of the checkpoints; every change is on disk on return."""

    def __init__(self, checkpoints: Checkpoints, topic: str, partition: int) -> None:
        self._checkpoints, self._key = checkpoints, (topic, partition)
        self.start = checkpoints.log_starts.get(*self._key) or 0
        self.cleaned_to = checkpoints.cleaned_to.get(*self._key) or 0
        self.deletes_dropped_to = checkpoints.deletes_dropped_to.get(*self._key) or 0
        self.first_dirty = checkpoints.first_dirty.get(*self._key) or 0

    def settle_start(self, offset: int) -> None:
        self._store(self._checkpoints.log_starts, offset)
        self.start = offset

    def note_cleaned(self, cleaned_to: int, deletes_dropped_to: int) -> None:
        """Stores the offsets; neither is ever lowered."""
        cleaned_to = max(cleaned_to, self.cleaned_to)
        deletes_dropped_to = max(deletes_dropped_to, self.deletes_dropped_to)
        self._store(self._checkpoints.cleaned_to, cleaned_to)
        self._store(self._checkpoints.deletes_dropped_to, deletes_dropped_to)
        self.cleaned_to, self.deletes_dropped_to = cleaned_to, deletes_dropped_to

    def note_compacted(self, first_dirty: int) -> None:
        """Called after the last swap: no key occurs twice below."""
        self._store(self._checkpoints.first_dirty, first_dirty)
        self.first_dirty = first_dirty

    def settle_recovery_point(self, offset: int) -> None:
        """Stores the recovery point, before a truncation, so that the removed part is not reported
        as a loss, and before a compaction below it, since an older point might then be inside a
        batch."""
        self._store(self._checkpoints.recovery_points, offset)

    def _store(self, checkpoint: OffsetCheckpoint, offset: int) -> None:
        checkpoint.set(*self._key, offset)
        checkpoint.sync()
