"""The producer snapshots of one partition: taken as it grows, so that recovery reads little."""

from pathlib import Path

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.storage.files import Files, write_all
from headwater.core_log.storage.producer_snapshot import SUFFIX, decode_snapshot, encode_snapshot
from headwater.core_log.storage.producers import Producer, ProducerStates
from headwater.core_log.storage.segment import file_name

SPACING_BYTES = 8 << 20
"""A recovery walks about twice this much by heads."""

ProducerSnapshot = list[tuple[int, Producer]]


class ProducerSnapshots:
    """Files named by the offset they hold good for. Unsynced: a damaged one is passed over."""

    def __init__(self, files: Files, directory: Path, offsets: list[int]) -> None:
        self._files, self._directory = files, directory
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> list[int]:
        """Of all snapshots held, oldest first."""
        return list(self._offsets)

    def take(self, producers: ProducerStates, offset: int) -> None:
        file = self._files.open(self._path(offset), create=True)
        content = encode_snapshot(producers)
        file.truncate(0)
        write_all(file, 0, content)
        if offset not in self._offsets:
            self._offsets.append(offset)

    def at(self, offset: int) -> ProducerSnapshot | None:
        """The snapshot taken exactly there, if it is there and whole."""
        try:
            return decode_snapshot(self._files.read(self._path(offset)))
        except (FileNotFoundError, DecodeError):
            return None

    def before(self, offset: int, *, spare: int = 0) -> tuple[int, ProducerSnapshot] | None:
        """The newest whole one at or before `offset`, passing over the `spare` newest."""
        for taken_at in reversed(self._offsets):
            if taken_at <= offset:
                snapshot = self.at(taken_at)
                if snapshot is not None and spare == 0:
                    return taken_at, snapshot
                spare -= snapshot is not None
        return None

    def drop_after(self, offset: int) -> None:
        """They speak of batches that are no longer there."""
        self._remove([each for each in self._offsets if each > offset])

    def prune(self, *, bases: set[int], synced: int) -> None:
        """Keeps those at segment starts, the two newest on disk, and what is newer still."""
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
