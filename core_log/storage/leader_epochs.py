"""Which leader wrote from which offset on, in Kafka's leader-epoch-checkpoint."""

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
    """Epochs and where each began, both growing. Every change but the first is on disk when it
    returns."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files, self._path = files, directory / FILE_NAME
        self.log_end: Callable[[], int] = lambda: 0
        """Where the newest epoch ends for now; set by the log that this belongs to."""
        self.is_damaged = False
        """The file could not be read: the batches must tell again who wrote them."""
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
        """Batches from `start_offset` on belong to `epoch`; older epochs that began there go."""
        if epoch <= self.latest:
            return
        kept = [start for start in self._starts if start.start_offset < start_offset]
        self._store([*kept, EpochStart(epoch, start_offset)])

    def open_first(self, epoch: int) -> File:
        """The same for a log in which nothing is yet, not synced: nothing is lost with it, as long
        as the file is on disk before the first batch counts."""
        assert not self._starts, "an epoch was there before"
        file = self._files.open(self._path, create=True)
        file.truncate(0)
        starts = [EpochStart(epoch, 0)]
        write_all(file, 0, encode_checkpoint(starts))
        self._starts, self.latest = starts, epoch
        return file

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch`, and where it ended: what a follower may keep.

        (-1, -1) says that this log has never heard of so new an epoch.
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
        """The epoch in which `offset` was written; -1 when that is not known."""
        following = bisect_right(self._starts, offset, key=lambda start: start.start_offset)
        return self._starts[following - 1].epoch if following else UNDEFINED

    def truncate_to(self, end_offset: int) -> None:
        """Forgets epochs that began at or after the new end."""
        count = bisect_left(self._starts, end_offset, key=lambda start: start.start_offset)
        if count < len(self._starts):
            self._store(self._starts[:count])

    def forget_before(self, start_offset: int) -> None:
        """Forgets epochs that ended before the new start; the one in force there begins at it."""
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
