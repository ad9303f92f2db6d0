"""The leader epoch of each offset, in Kafka's leader-epoch-checkpoint."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.batch_header import BatchHeader
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
    """Epochs and their start offsets, both growing. A new epoch is known at once, and on disk with
    the sync of its first batch, from which it can be read again."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files, self._path = files, directory / FILE_NAME
        self.log_end: Callable[[], int] = lambda: 0
        """The end of the newest epoch; the owning log updates it."""
        self.is_damaged = False
        """The file is unreadable: the epochs must be read from the batches again."""
        self.has_new_name = False
        """The file was created, and its directory is not yet synced."""
        self._is_stored = True
        self._starts: list[EpochStart] = []
        try:
            rows = read_checkpoint(files, self._path, columns=2)
            starts = [EpochStart(int(epoch), int(offset)) for epoch, offset in rows]
            self.is_damaged = any(
                old.epoch >= new.epoch or old.start_offset >= new.start_offset
                for old, new in pairwise(starts)
            )
            self._starts = [] if self.is_damaged else starts
        except (DecodeError, ValueError):
            self.is_damaged = True
        self.latest = self._starts[-1].epoch if self._starts else UNDEFINED

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Batches from `start_offset` on belong to `epoch`. Epochs that would have begun there, or
        later, have no batches and are removed, whatever their numbers (KAFKA-10706)."""
        if epoch == self.latest:
            return
        kept = [start for start in self._starts if start.start_offset < start_offset]
        if not kept or kept[-1].epoch < epoch:
            kept.append(EpochStart(epoch, start_offset))
        if kept != self._starts:
            self._replace(kept)
            self._is_stored = False

    def flush(self) -> File | None:
        """Writes a new epoch that has batches; returns the file to be synced with them."""
        if self._is_stored or not self._starts or self.log_end() <= self._starts[-1].start_offset:
            return None
        self.has_new_name = self.has_new_name or not self._files.exists(self._path)
        file, content = self._files.open(self._path, create=True), encode_checkpoint(self._starts)
        write_all(file, 0, content)
        file.truncate(len(content))
        self._is_stored = True
        return file

    def store(self) -> None:
        """Writes the file; it is on disk on return."""
        write_checkpoint(self._files, self._path, self._starts)
        self._is_stored = True

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
        """Removes epochs that begin at the new end or later."""
        count = bisect_left(self._starts, end_offset, key=lambda start: start.start_offset)
        if count < len(self._starts):
            self._replace(self._starts[:count])
            self.store()

    def read_again(self, headers: Iterable[BatchHeader], *, from_offset: int) -> None:
        """Takes the epochs from `from_offset` on from all batches there; the file may be older than
        they are, or newer."""
        before = self._starts
        self._replace([start for start in before if start.start_offset < from_offset])
        for header in headers:
            self.assign(header.leader_epoch, header.base_offset)
        if self.is_damaged or self._starts != before:
            self.store()
        self.is_damaged = False

    def forget_before(self, start_offset: int) -> None:
        """Removes epochs that ended before the new start; the one that contains the start now
        begins there."""
        following = bisect_right(self._starts, start_offset, key=lambda start: start.start_offset)
        if following == 0 or self._starts[following - 1].start_offset == start_offset == 0:
            return
        in_force = EpochStart(self._starts[following - 1].epoch, start_offset)
        moved = [in_force, *self._starts[following:]]
        if moved != self._starts:
            self._replace(moved)
            self.store()

    def _replace(self, starts: list[EpochStart]) -> None:
        self._starts = starts
        self.latest = starts[-1].epoch if starts else UNDEFINED
