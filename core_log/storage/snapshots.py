"""The producer snapshots of one partition, written as it grows, so that recovery reads little."""

from pathlib import Path

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.storage.files import Files, write_all
from headwater.core_log.storage.producer_snapshot import SUFFIX, decode_snapshot, encode_snapshot
from headwater.core_log.storage.producers import Producer, ProducerStates
from headwater.core_log.storage.segment import file_name

SPACING_BYTES = 8 << 20
"""A recovery reads the headers of about twice this many bytes."""

ProducerSnapshot = list[tuple[int, Producer]]


class ProducerSnapshots:
    """Snapshot files, each named by its offset. They are unsynced: a damaged one is ignored."""

    def __init__(self, files: Files, directory: Path, offsets: list[int]) -> None:
        self._files, self._directory = files, directory
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> list[int]:
        """Returns the offsets of all snapshots, oldest first."""
        return list(self._offsets)

    def take(self, producers: ProducerStates, offset: int) -> None:
        file = self._files.open(self._path(offset), create=True)
        content = encode_snapshot(producers)
        file.truncate(0)
        write_all(file, 0, content)
        if offset not in self._offsets:
            self._offsets.append(offset)

    def at(self, offset: int) -> ProducerSnapshot | None:
        """Returns the snapshot at exactly that offset, if it exists and is valid."""
        try:
            return decode_snapshot(self._files.read(self._path(offset)))
        except (FileNotFoundError, DecodeError):
            return None

    def before(self, offset: int, *, spare: int = 0) -> tuple[int, ProducerSnapshot] | None:
        """Returns the newest valid one at or before `offset`, without the `spare` newest."""
        for taken_at in reversed(self._offsets):
            if taken_at <= offset:
                snapshot = self.at(taken_at)
                if snapshot is not None and spare == 0:
                    return taken_at, snapshot
                spare -= snapshot is not None
        return None

    def drop_after(self, offset: int) -> None:
        """Removes later snapshots: their batches no longer exist."""
        self._remove([each for each in self._offsets if each > offset])

    def prune(self, *, bases: set[int], synced: int) -> None:
        """Keeps those at segment starts, the two newest on disk, and all newer ones."""
        between = [each for each in self._offsets if each not in bases and each <= synced]
        self._remove(between[:-2])

    def forget_before(self, offset: int) -> None:
        self._remove([each for each in self._offsets if each < offset])

    def _remove(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._files.remove(self._path(offset))
            self._offsets.remove(offset)

    def _path(self, offset: int) -> Path:
        return self._directory / file_name(offset, SUFFIX)
