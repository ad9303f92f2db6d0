"""Opens a partition: trusts its files after a clean stop, and checks them after a crash."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from weakref import proxy

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.storage.checkpoints import Checkpoints
from headwater.core_log.storage.files import File, Files, write_all
from headwater.core_log.storage.leader_epochs import EpochCache
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.producer_snapshot import (
    ProducerSnapshots,
    read_producers,
    restore_producers,
)
from headwater.core_log.storage.producers import ProducerStates
from headwater.core_log.storage.properties import Loss, note_loss, read_loss
from headwater.core_log.storage.scan import CHECK_BYTES, CheckedBatches, Damage, find_batch, is_zero
from headwater.core_log.storage.segment import LOG, SNAPSHOT, Segment, file_name
from headwater.core_log.storage.segments import DAMAGE_HINT, Segments
from headwater.core_log.storage.swap import UNFINISHED, base_offsets, finish_swaps


class LogRecovery:
    """One opening of one partition; `cut` is the part truncated from its end, if any."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        topic: str,
        partition: int,
        config: LogConfig,
        checkpoints: Checkpoints,
        now_ms: int,
    ) -> None:
        self._files, self._directory = files, directory
        self._topic, self._partition, self._config = topic, partition, config
        self._checkpoints, self._now_ms = checkpoints, now_ms
        self._epochs = EpochCache(files, directory)
        self.cut: Truncation | None = None
        self.loss = read_loss(files, directory)
        """The loss of the partition that this or an earlier opening has found."""

    def note_loss(self, loss: Loss) -> None:
        note_loss(self._files, self._directory, loss)
        self.loss = read_loss(self._files, self._directory)

    def open_trusting(self) -> PartitionLog:
        """Opens after a clean stop: everything is on disk, and only the newest batches are read."""
        segments, snapshots = self._find()
        end_offset = segments.active.adopt(segments.active.size)
        self._check_promise(segments, end_offset)
        producers = ProducerStates()
        snapshot = snapshots.at(end_offset)
        if snapshot is None:
            restore_producers(producers, segments, snapshots, end_offset, now_ms=self._now_ms)
        else:
            producers.restore(snapshot)
        self._settle_epochs(segments, end_offset, certain_to=end_offset)
        return self._assemble(segments, snapshots, producers, end_offset)

    def open_doubting(self, recovery_point: int | None) -> PartitionLog:
        """Opens after a crash: only records below the recovery point are certainly on disk.

        Without a recovery point (None) nothing is certain, and damage that is not at the very end
        is an error.
        """
        segments, snapshots = self._find()
        cleaned_to = self._checkpoints.cleaned_to.get(self._topic, self._partition) or 0
        may_skip = self._config.is_compacted or cleaned_to > 0 or recovery_point is None
        tail = Tail(
            self._files,
            segments,
            recovery_point=recovery_point,
            indexed_to=self._indexed_to(snapshots, recovery_point),
            may_skip=may_skip,
            now_ms=self._now_ms,
            note_doubt=lambda: self.note_loss(Loss.DOUBTFUL),
        )
        tail.check()
        self.cut, end_offset = tail.cut, tail.end_offset
        # a later snapshot would mean that the indexes are on disk, which is as uncertain
        snapshots.drop_after(min(end_offset, recovery_point or 0))
        producers = ProducerStates()
        restore_producers(
            producers,
            segments,
            snapshots,
            end_offset,
            certain_to=recovery_point or 0,
            now_ms=self._now_ms,
        )
        self._settle_epochs(segments, end_offset, certain_to=recovery_point or 0)
        if self.cut is not None or end_offset != recovery_point:
            self._files.sync_directory(self._directory)
        self._checkpoints.recovery_points.set(self._topic, self._partition, end_offset)
        return self._assemble(segments, snapshots, producers, end_offset)

    def _indexed_to(self, snapshots: ProducerSnapshots, recovery_point: int | None) -> int:
        """Indexes are synced with the first batches after a snapshot, and not before."""
        taken = snapshots.before((recovery_point or 0) - 1)
        return taken[0] if taken else 0

    def _check_promise(self, segments: Segments, end_offset: int) -> None:
        promised = self._checkpoints.recovery_points.get(self._topic, self._partition) or 0
        if end_offset < promised:
            raise CorruptLog(
                "log ends before its recovery point, although it was closed cleanly",
                file=str(segments.active.path),
                offset=end_offset,
                recovery_point=promised,
                hint=DAMAGE_HINT,
            )

    def _find(self) -> tuple[Segments, ProducerSnapshots]:
        """Finds the segments after removing the files of unfinished work."""
        finish_swaps(self._files, self._directory)
        names = self._files.names(self._directory)
        for name in names:
            if name.endswith(UNFINISHED):
                self._files.remove(self._directory / name)
        bases = base_offsets(names)
        segments = [self._segment(base, is_new=False) for base in bases]
        known_start = self._checkpoints.log_starts.get(self._topic, self._partition)
        if segments and known_start is not None and bases[0] > known_start:
            raise CorruptLog(
                "oldest segments are missing",
                directory=str(self._directory),
                offset=known_start,
                next_offset=bases[0],
                hint="restore them, or raise the offset in log-start-offset-checkpoint",
            )
        if not segments:
            segments = [self._segment(known_start or 0, is_new=True)]
        stems = (name.removesuffix(SNAPSHOT) for name in names if name.endswith(SNAPSHOT))
        offsets = [int(stem) for stem in stems if stem.isdigit()]
        return (
            Segments(self._files, self._directory, segments),
            ProducerSnapshots(self._files, self._directory, offsets),
        )

    def _segment(self, base_offset: int, *, is_new: bool) -> Segment:
        interval = self._config.index_interval_bytes
        segment = Segment(
            self._files, self._directory, base_offset, index_interval=interval, is_new=is_new
        )
        if not is_new:
            segment.size = self._files.size(self._directory / file_name(base_offset, LOG))
        return segment

    def _assemble(
        self,
        segments: Segments,
        snapshots: ProducerSnapshots,
        producers: ProducerStates,
        end_offset: int,
    ) -> PartitionLog:
        active = segments.active
        if active.size:
            head = active.file.read(0, HEADER_BYTES)
            active.first_timestamp = BatchHeader.read(head).max_timestamp
        log = PartitionLog(
            files=self._files,
            directory=self._directory,
            topic=self._topic,
            partition=self._partition,
            config=self._config,
            segments=segments,
            end_offset=end_offset,
            producers=producers,
            snapshots=snapshots,
            epochs=self._epochs,
            marks=self._checkpoints.of(self._topic, self._partition),
        )
        this = proxy(log)
        producers.read_again = lambda: read_producers(segments, snapshots, int(this.end_offset))
        return log

    def _settle_epochs(self, segments: Segments, end_offset: int, *, certain_to: int) -> None:
        """Reads the epochs of batches that are certainly on disk from the checkpoint; those of
        later ones, or of all if it is lost, from the batch headers."""
        epochs = self._epochs
        is_missing = not epochs.starts and end_offset > segments.first.base_offset
        from_offset = 0 if epochs.is_damaged or is_missing else certain_to
        headers = segments.heads(from_offset) if from_offset < end_offset else ()
        epochs.read_again(headers, from_offset=min(from_offset, end_offset))


@dataclass(frozen=True, slots=True)
class Truncation:
    """The part that recovery removed from the end of a partition: none of it was promised to be on
    disk."""

    file: str
    position: int
    next_offset: int
    """The partition continues with this offset."""
    reason: str
    size: int
    kept_as: tuple[str, ...] = ()
    """Path of the removed bytes, if whole batches were among them."""
    found_from: int | None = None
    found_to: int | None = None
    """The offsets of those batches, from the first to the end."""


class Tail:
    """Checks a partition from its recovery point on. Damage below it is a loss and never
    truncated."""

    def __init__(
        self,
        files: Files,
        segments: Segments,
        *,
        recovery_point: int | None,
        indexed_to: int,
        may_skip: bool,
        now_ms: int,
        note_doubt: Callable[[], None] = lambda: None,
    ) -> None:
        """`note_doubt` is called before anything is cut that whole batches follow: they, and so
        what is cut, may have been on disk."""
        self._files, self._segments, self._indexed_to = files, segments, indexed_to
        self._recovery_point, self._may_skip, self._now_ms = recovery_point, may_skip, now_ms
        self._note_doubt = note_doubt
        self.end_offset = segments.first.base_offset
        self.cut: Truncation | None = None

    def check(self) -> None:
        """Truncates every segment to its valid part, writes again what may not be on disk, and
        syncs it; `end_offset` is the new end."""
        promised = self._recovery_point or 0
        checked = list(self._segments.from_offset(max(promised - 1, 0)))
        for number, segment in enumerate(checked):
            size = segment.size
            following = checked[number + 1 :]
            damage = self._check_segment(segment, size, following)
            if damage is None and following and not self._is_next(following[0]):
                damage = Damage(segment.size, self.end_offset, "next segment does not follow")
            if damage is not None:
                self._cut(segment, size, following, damage)
            is_sealed = damage is None and bool(following)
            for file in segment.seal() if is_sealed else ():
                file.sync()
            if damage is not None or self.end_offset > promised:
                segment.file.sync()
                self._files.sync_directory(self._segments.directory)
            if damage is not None:
                break

    def _check_segment(
        self, segment: Segment, size: int, following: list[Segment]
    ) -> Damage | None:
        promised = self._recovery_point or 0
        try:
            self.end_offset = segment.adopt(
                size, below=promised, trusted_to=self._indexed_to, may_skip=self._may_skip
            )
            self._check_last_promised(segment)
        except CorruptLog as error:
            raise CorruptLog(
                f"{error.problem}, below its recovery point",
                **error.facts,
                recovery_point=promised,
                hint=DAMAGE_HINT,
            ) from error
        is_inside = not following or following[0].base_offset > promised
        reach = promised if is_inside else following[0].base_offset
        is_short = self.end_offset < reach and (is_inside or not self._may_skip)
        if is_short or self.end_offset > max(reach, segment.base_offset):
            raise CorruptLog(
                "log does not end a batch at its recovery point",
                file=str(segment.path),
                position=segment.size,
                offset=self.end_offset,
                recovery_point=promised,
                hint=DAMAGE_HINT,
            )
        batches = CheckedBatches(
            segment.file,
            segment.size,
            size,
            next_offset=self.end_offset,
            may_skip=self._recovery_point is None,  # nothing is compacted before it is on disk
        )
        unproved = segment.size
        for position, header, _ in batches:
            segment.note(position, header.total_bytes, header.last_offset, header.max_timestamp)
        write_again(segment.file, unproved, segment.size)
        self.end_offset = batches.next_offset
        return batches.damage

    def _check_last_promised(self, segment: Segment) -> None:
        """Truncation may begin after the batch that seems to reach the recovery point, so its
        header must be beyond doubt."""
        entry = segment.index.before_offset(self.end_offset - 1)
        start = entry[1] if entry else 0
        batches = CheckedBatches(segment.file, start, segment.size, next_offset=0, may_skip=True)
        for _ in batches:
            pass
        if batches.damage is not None:
            position, offset, reason = batches.damage
            raise CorruptLog(reason, file=str(segment.path), position=position, offset=offset)

    def _is_next(self, segment: Segment) -> bool:
        base, promised = segment.base_offset, self._recovery_point
        if self._may_skip and (promised is None or base <= promised):
            return base >= self.end_offset
        return base == self.end_offset

    def _cut(self, segment: Segment, size: int, following: list[Segment], damage: Damage) -> None:
        file, position = segment.file, damage.position
        found = find_batch(file, position, size, offset=damage.offset)
        later = [each for each in following if not is_zero(each.file, 0, each.size)]
        if not later and (position == size or is_zero(file, position, size)):
            self._shorten(segment, following, damage)  # space that was never written
            return
        is_followed = found is not None or bool(later)
        if is_followed and self._recovery_point is None:
            raise CorruptLog(
                "log is damaged, and its recovery point is lost",
                file=str(segment.path),
                position=position,
                offset=damage.offset,
                reason=damage.reason,
                hint="restore recovery-point-offset-checkpoint, or cut the file at that position",
            )
        kept: list[str] = []
        found_from, found_to = None, None
        if is_followed:
            self._note_doubt()
            found_from, found_to = self._span(segment, size, found, later)
            kept = [self._keep(segment, position, size), *map(self._keep_whole, later)]
        self.cut = Truncation(
            str(segment.path),
            position,
            damage.offset,
            damage.reason,
            size - position + sum(each.size for each in later),
            tuple(kept),
            found_from,
            found_to,
        )
        self._shorten(segment, following, damage)

    def _span(
        self, segment: Segment, size: int, found: int | None, later: list[Segment]
    ) -> tuple[int | None, int | None]:
        """Returns the offsets of the first run of whole batches after the damage."""
        source, position, end = segment, found, size
        if position is None:
            source, position, end = later[0], 0, later[0].size
        batches = CheckedBatches(
            source.file, position, end, next_offset=self.end_offset, may_skip=True
        )
        offsets = [header for _, header, _ in batches]
        if not offsets:
            return None, None
        return offsets[0].base_offset, offsets[-1].next_offset

    def _keep(self, segment: Segment, position: int, size: int) -> str:
        target = self._cut_path(segment)
        copy = self._files.open(target, create=True)
        written = 0
        while position < size:
            chunk = segment.file.read(position, min(CHECK_BYTES, size - position))
            write_all(copy, written, chunk)
            position, written = position + len(chunk), written + len(chunk)
        copy.sync()
        return str(target)

    def _keep_whole(self, segment: Segment) -> str:
        target = self._cut_path(segment)
        self._files.rename(segment.path, target)
        return str(target)

    def _cut_path(self, segment: Segment) -> Path:
        return segment.path.with_name(f"{segment.path.name}.cut-{self._now_ms}")

    def _shorten(self, segment: Segment, following: list[Segment], damage: Damage) -> None:
        for path in self._segments.drop(following[::-1]):
            self._files.remove(path)
        segment.cut(damage.position, damage.offset)


def write_again(file: File, position: int, end: int) -> None:
    """Makes the next sync prove these bytes. If a sync of the process before had failed, the system
    may hold them as clean pages that are not on disk, which a sync alone would pass over."""
    while position < end:
        chunk = file.read(position, min(CHECK_BYTES, end - position))
        write_all(file, position, chunk)
        position += len(chunk)
