"""The leader epoch of each offset, in Kafka's leader-epoch-checkpoint."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.storage.checkpoints import (
    encode_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from headwater.core_log.storage.files import File, Files, write_all

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochCache:
    """Epochs and their start offsets, both growing. Every change but the first is on disk on
    return."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files, self._path = files, directory / FILE_NAME
        self.log_end: Callable[[], int] = lambda: 0
        """The end of the newest epoch; the owning log updates it."""
        self.is_damaged = False
        """The file is unreadable: the epochs must be read from the batches again."""
        self._starts: list[EpochStart] = []
        try:
            rows = read_checkpoint(files, self._path, columns=2)
            self._starts = [EpochStart(int(epoch), int(offset)) for epoch, offset in rows]
        except (DecodeError, ValueError):
            self.is_damaged = True
        self.latest = self._starts[-1].epoch if self._starts else UNDEFINED

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Batches from `start_offset` on belong to `epoch`; older epochs that began there are
        removed."""
        if epoch <= self.latest:
            return
        kept = [start for start in self._starts if start.start_offset < start_offset]
        self._store([*kept, EpochStart(epoch, start_offset)])

    def open_first(self, epoch: int) -> File:
        """Does the same for an empty log, unsynced: nothing can be lost, if the file is on disk
        before the first batch counts as durable."""
        assert not self._starts, "an epoch was there before"
        file = self._files.open(self._path, create=True)
        file.truncate(0)
        starts = [EpochStart(epoch, 0)]
        write_all(file, 0, encode_checkpoint(starts))
        self._starts, self.latest = starts, epoch
        return file

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch up to `epoch` and its end: the part that a follower may keep.

        (-1, -1) means that this log knows no epoch that new.
        """
        if epoch == UNDEFINED:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, self.log_end()
        following = bisect_right(self._starts, epoch, key=lambda start: start.epoch)
        if following == len(self._starts):
            return UNDEFINED, UNDEFINED
        end = self._starts[following].start_offset
        if following == 0:
            return epoch, end
        return self._starts[following - 1].epoch, end

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch of `offset`; -1 if it is not known."""
        following = bisect_right(self._starts, offset, key=lambda start: start.start_offset)
        return self._starts[following - 1].epoch if following else UNDEFINED

    def truncate_to(self, end_offset: int) -> None:
        """Removes epochs that began at or after the new end."""
        count = bisect_left(self._starts, end_offset, key=lambda start: start.start_offset)
        if count < len(self._starts):
            self._store(self._starts[:count])

    def forget_before(self, start_offset: int) -> None:
        """Removes epochs that ended before the new start; the one that contains the start now
        begins there."""
        following = bisect_right(self._starts, start_offset, key=lambda start: start.start_offset)
        if following == 0 or self._starts[following - 1].start_offset == start_offset == 0:
            return
        in_force = EpochStart(self._starts[following - 1].epoch, start_offset)
        moved = [in_force, *self._starts[following:]]
        if moved != self._starts:
            self._store(moved)

    def _store(self, starts: list[EpochStart]) -> None:
        write_checkpoint(self._files, self._path, starts)
        self._starts = starts
        self.latest = starts[-1].epoch if starts else UNDEFINED
