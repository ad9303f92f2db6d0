"""Opens a partition: trusts its files after a clean stop, and checks them after a crash."""

from pathlib import Path
from weakref import proxy

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.storage.checkpoints import Checkpoints
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.leader_epochs import EpochCache
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.losses import Loss, note_loss, read_loss
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.producer_snapshot import SUFFIX as SNAPSHOT
from headwater.core_log.storage.producer_snapshot import ProducerSnapshots
from headwater.core_log.storage.producers import ProducerStates
from headwater.core_log.storage.replay import read_producers, restore_producers
from headwater.core_log.storage.segment import LOG, Segment, file_name
from headwater.core_log.storage.segments import DAMAGE_HINT, Segments
from headwater.core_log.storage.swap import UNFINISHED, base_offsets, finish_swaps
from headwater.core_log.storage.tail import Tail, Truncation


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
