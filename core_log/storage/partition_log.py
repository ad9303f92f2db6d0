"""One partition on this broker: appends at its end, reads anywhere, deletes from its start."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import proxy

from headwater.core_log.foundation.errors import (
    CorruptBatch,
    CorruptLog,
    OffsetOutOfRange,
    StorageFailed,
)
from headwater.core_log.records.batch_header import BatchHeader, check_batch, stamp
from headwater.core_log.records.record_codec import encode_marker, iterate_batches
from headwater.core_log.storage.checkpoints import PartitionMarks
from headwater.core_log.storage.durability import Durability, RemovalJob
from headwater.core_log.storage.durability import SyncJob as SyncJob
from headwater.core_log.storage.files import Bytes, File, FileRange, Files, refusal_of
from headwater.core_log.storage.index import AbortedTransaction
from headwater.core_log.storage.leader_epochs import EpochCache
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.producer_snapshot import (
    ProducerSnapshots,
    mend_aborted,
    replay_marker,
    restore_producers,
)
from headwater.core_log.storage.producers import ProducerStates, is_data
from headwater.core_log.storage.segment import FOREVER, LOG, SNAPSHOT_SPACING_BYTES, Segment
from headwater.core_log.storage.segments import Growth, Segments, TimedOffset
from headwater.core_log.storage.swap import cleaned_path, cleaned_paths, commit_swap, finish_swap

logger = logging.getLogger(__name__)

RANGES_MAX = 16
"""Limit of file ranges in one answer: each file stays open until it is sent."""


class PartitionLog:
    """The log of one partition. Only the event loop's thread changes it; a `SyncJob` runs in
    another thread without its state.

    A refused write leaves the partition unchanged, so that the next append tries again. A failed
    sync is different: memory then proves nothing, and the partition is offline until it is opened
    again.
    """

    def __init__(
        self,
        *,
        files: Files,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        segments: Segments,
        end_offset: int,
        producers: ProducerStates,
        snapshots: ProducerSnapshots,
        epochs: EpochCache,
        marks: PartitionMarks,
    ) -> None:
        self._files, self.directory = files, directory
        self.topic, self.partition = topic, partition
        self.segments, self.end_offset = segments, end_offset
        self.producers, self.epochs, self._snapshots = producers, epochs, snapshots
        # no reference cycle: with the last reference its files are closed at once
        this = proxy(self)
        epochs.log_end = lambda: int(this.end_offset)
        self._marks = marks
        self.start_offset = min(max(marks.start, segments.first.base_offset), end_offset)
        self._durability = Durability(files, end_offset)
        self.failure: str | None = None
        """The disk's error that took the partition offline."""
        self.refused = ""
        """The disk's last refusal; empty after the next success."""
        self._config = config
        segments.may_skip = config.is_compacted or marks.cleaned_to > 0
        self._growth = Growth(segments.active, config, snapshot_size=segments.active.size)

    @property
    def config(self) -> LogConfig:
        """The configuration; it may be replaced at any time."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.segments.may_skip = config.is_compacted or self.cleaned_to > 0
        for segment in self.segments:
            segment.index_interval = config.index_interval_bytes
        self._growth = Growth(
            self.segments.active, config, snapshot_size=self._growth.snapshot_size
        )

    @property
    def durable_offset(self) -> int:
        """Everything below survives a crash: it is on disk, or recovery writes it again."""
        return self._durability.durable

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk."""
        return self._durability.synced

    @property
    def settled_offset(self) -> int:
        """Nothing below waits for a sync: it is on disk, or `fsync: never` is set."""
        return self._durability.settled

    @property
    def cleaned_to(self) -> int:
        """Compaction may have removed older values below this."""
        return self._marks.cleaned_to

    @property
    def deletes_dropped_to(self) -> int:
        """Compaction may have dropped tombstones below this."""
        return self._marks.deletes_dropped_to

    @property
    def first_dirty_offset(self) -> int:
        """The offset from which the next compaction looks for newer values."""
        return self._marks.first_dirty

    @property
    def size(self) -> int:
        return self.segments.size

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the newest batch; -1 without one."""
        return self.epochs.epoch_at(self.end_offset - 1)

    @property
    def is_offline(self) -> bool:
        return self.failure is not None

    def append(
        self, batch: memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int
    ) -> int:
        """Appends as leader one batch whose checksum the caller has checked; returns its base
        offset.

        Offset and epoch are stamped into `batch` itself; then it is written at once, unsynced.
        """
        if self.failure is not None:
            raise self._offline(self.failure)
        producers, has_producer = self.producers, header.producer_id >= 0
        if has_producer:
            producers.check(header)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self.segments.active
        growth = self._growth
        if (
            segment.size + len(batch) > growth.size_max
            or header.max_timestamp > growth.timestamp_max
            or last_offset > growth.offset_max
        ):
            segment = self._make_room(len(batch), last_offset, header.max_timestamp)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        stamp(batch, base_offset=base_offset, leader_epoch=leader_epoch)
        try:
            segment.append(batch, last_offset, header.max_timestamp)
        except OSError as error:
            raise self._undo(error) from error
        self.end_offset = last_offset + 1
        if has_producer:
            producers.note(header, base_offset, now_ms)
        return base_offset

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
    ) -> int:
        """Ends a producer's transaction in this partition; returns the marker's offset."""
        if self.failure is not None:
            raise self._offline(self.failure)
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        offset = self.end_offset
        marker = encode_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        segment = self._write(marker, leader_epoch, offset, offset, now_ms)
        segment.remember(self.end_offset, segment.size)
        aborted = self.producers.note_marker(
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            offset=offset,
            timestamp_ms=now_ms,
        )
        if aborted is not None:
            segment.aborted.add(aborted)
        return offset

    def append_as_follower(self, batches: memoryview, *, now_ms: int = -1) -> int:
        """Appends batches as their leader stamped them; returns the new end offset."""
        if self.failure is not None:
            raise self._offline(self.failure)
        for batch in iterate_batches(batches):
            header = check_batch(batch)
            if header.base_offset < self.end_offset:
                raise CorruptBatch(
                    "leader's batch is before the end of this log",
                    base_offset=header.base_offset,
                    end_offset=self.end_offset,
                )
            first, last = header.base_offset, header.last_offset
            segment = self._write(batch, header.leader_epoch, first, last, header.max_timestamp)
            noted_ms = header.max_timestamp if now_ms < 0 else now_ms
            if is_data(header):
                self.producers.note(header, header.base_offset, noted_ms)
            elif header.is_control:
                for aborted in replay_marker(self.producers, header, batch, noted_ms):
                    segment.aborted.add(aborted)
        return self.end_offset

    def _write(
        self, batch: Bytes, epoch: int, first_offset: int, last_offset: int, max_timestamp: int
    ) -> Segment:
        """Writes a complete batch at the end; `append` contains the same code to save a call."""
        segment = self._make_room(len(batch), last_offset, max_timestamp)
        self.epochs.assign(epoch, first_offset)
        try:
            segment.append(batch, last_offset, max_timestamp)
        except OSError as error:
            raise self._undo(error) from error
        self.end_offset = last_offset + 1
        return segment

    def read(
        self, offset: int, *, below: int, bytes_max: int, at_least_one: bool
    ) -> FileRange | None:
        """Returns whole batches from the one with `offset` on, none of which begins at or after
        `below`.

        Returns nothing if there is none, or none fits and `at_least_one` is not set.
        """
        if self.failure is not None:
            raise self._offline(self.failure)
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                "offset is not in this log",
                offset=offset,
                start_offset=self.start_offset,
                end_offset=self.end_offset,
            )
        try:
            return self.segments.read(
                offset,
                below=below,
                end_offset=self.end_offset,
                bytes_max=bytes_max,
                at_least_one=at_least_one,
            )
        except OSError as error:
            raise self._refusal(error) from error

    def read_across(
        self, offset: int, *, below: int, bytes_max: int, at_least_one: bool
    ) -> list[FileRange]:
        """Reads in the same way, and continues in the next segments while there is room."""
        found: list[FileRange] = []
        while len(found) < RANGES_MAX and (
            file_range := self.read(
                offset, below=below, bytes_max=bytes_max, at_least_one=at_least_one and not found
            )
        ):
            found.append(file_range)
            offset, bytes_max = file_range.next_offset, bytes_max - file_range.size
            if offset >= below or bytes_max <= 0 or not self.segments.has_start(offset):
                break
        return found

    def heads(self, from_offset: int) -> Iterator[BatchHeader]:
        """Yields the headers of all batches from the one with `from_offset` on, without their
        records."""
        return self.segments.heads(from_offset)

    def batches(self, from_offset: int) -> Iterator[memoryview]:
        """Yields every whole batch from the one with `from_offset` on, and checks its checksum."""
        return self.segments.batches(from_offset)

    def offset_for_timestamp(self, timestamp_ms: int, *, below: int) -> TimedOffset | None:
        """Returns the first record at or after a time, among those below `below`."""
        return self.segments.first_at_or_after(
            timestamp_ms, start_offset=self.start_offset, below=below
        )

    def max_timestamp(self, *, below: int = FOREVER) -> TimedOffset | None:
        """Returns the record with the newest timestamp among those below `below`."""
        return self.segments.newest(start_offset=self.start_offset, below=below)

    def find_aborted(self, lo: int, hi: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that may have records in [lo, hi)."""
        try:
            return self.segments.find_aborted(lo, hi)
        except CorruptLog:  # of an index, unless the batches are damaged as well
            mend_aborted(self.segments, self._snapshots, self.end_offset)
            return self.segments.find_aborted(lo, hi)

    def sync_job(self) -> SyncJob:
        """Returns the job that puts everything written so far on disk."""
        active = self.segments.active
        for described in (self.epochs, active.aborted):
            try:
                file = described.flush()
            except OSError:  # no room for it: then the batches are not on disk either
                return self._durability.no_job(is_held_up=True)
            if file is not None:
                self._durability.add([file])
            if described.has_new_name:
                described.has_new_name = False
                self._durability.add([], [self.directory])
        active.remember(self.end_offset, active.size)
        return self._durability.job(active.file, self.end_offset)

    def finish_sync(self, job: SyncJob) -> None:
        """Called when the job ended without an error."""
        self.refused = ""
        self._durability.on_synced(job)

    def sync_failed(self, error: Exception) -> None:
        """Called after a failed sync: the data may or may not be on disk, and a second sync would
        not tell."""
        self.failure = str(error)

    def sync(self) -> None:
        """Syncs in this thread: for opening and closing, not for the event loop."""
        job = self.sync_job()
        try:
            job.run()
        except OSError as error:
            self.sync_failed(error)
            raise self._refusal(error) from error
        self.finish_sync(job)

    def begin_epoch(self, epoch: int) -> None:
        """Records from now on are written in this leader epoch."""
        self.epochs.assign(epoch, self.end_offset)

    def sync_with_next(self, files: list[File], directories: list[Path]) -> None:
        """Adds files that must be on disk before anything counts as durable."""
        self._durability.add(files, directories)

    def trust_written(self) -> None:
        """With `fsync: never` written records count as durable; only a clean stop syncs them."""
        self._durability.on_trusted(self.end_offset)

    def note_marker_durable(self, offset: int | None = None) -> None:
        """The decision behind the marker at `offset` (by default the newest record) is on disk.

        When everything below it is on disk too, it counts as durable: recovery would write it
        again.
        """
        self._durability.on_marker_decided(self.end_offset - 1 if offset is None else offset)

    def roll(self) -> None:
        """Seals the active segment and continues in a new one.

        It does not sync, which would block the event loop. The next `SyncJob` syncs the sealed
        files, then the new one, then the directory, before it proves anything.
        """
        sealed = self.segments.active
        if sealed.size == 0:
            return
        with self._refusing():
            self._durability.add([sealed.file, *sealed.seal()])
            self._snapshots.take(self.producers, self.end_offset)
            fresh = self._segment(self.end_offset, is_new=True)
        self._durability.add([], [self.directory])
        self.segments.add(fresh)
        self._growth = Growth(fresh, self._config, snapshot_size=0)

    def delete_records_before(self, offset: int) -> int:
        """Moves the log's start up, on disk on return; returns the new start."""
        offset = min(offset, self.end_offset)
        if offset > self.start_offset:
            with self._refusing():
                self._marks.settle_start(offset)
            self.start_offset = offset
        return self.start_offset

    def apply_retention(self, now_ms: int, *, below: int, leads: bool = True) -> RemovalJob | None:
        """Removes expired segments; returns the job that deletes their files. A follower removes
        only what lies below the start that its leader has given."""
        config = self._config if leads else self._config.without_expiry()
        is_aged = self.segments.is_worth_rolling(config, now_ms=now_ms)
        if is_aged and self.end_offset <= below:
            self.roll()
        start, segments = self.start_offset, self.segments
        gone = segments.find_expired(config, now_ms=now_ms, start_offset=start, below=below)
        if not gone:
            return None
        following = self.segments.after(gone[-1])
        assert following is not None, "the active segment is never among them"
        start_offset = max(self.start_offset, following.base_offset)
        with self._refusing():
            self._marks.settle_start(start_offset)  # so that a segment missed later is missed
            # after any failure from here on, nothing below is read
            self.start_offset = start_offset
            paths = self.segments.drop(gone)
            self._snapshots.forget_before(following.base_offset)
            self.epochs.forget_before(start_offset)
        return RemovalJob(self._files, paths)

    def truncate_to(self, offset: int) -> None:
        """Removes everything at or after `offset`: a follower removes what its leader does not
        have."""
        if offset >= self.end_offset:
            with self._refusing():
                self.epochs.truncate_to(self.end_offset)
            return
        gone = [segment for segment in self.segments if segment.base_offset >= offset]
        if len(gone) == len(self.segments):
            gone = gone[1:]
        with self._refusing():
            self._marks.settle_recovery_point(min(offset, self.recovery_point))
            self._marks.note_compacted(min(offset, self._marks.first_dirty))
            for path in self.segments.drop(gone[::-1]):
                self._files.remove(path)
            active = self.segments.active
            active.cut(active.position_of(offset), offset)
            self.end_offset = max(offset, active.base_offset)
            if self.end_offset < self.start_offset:
                self._marks.settle_start(self.end_offset)
                self.start_offset = self.end_offset
            self.epochs.truncate_to(self.end_offset)
            self._snapshots.drop_after(self.end_offset)
            restore_producers(self.producers, self.segments, self._snapshots, self.end_offset)
        self._durability.on_truncated(self.end_offset)
        self._growth = Growth(active, self._config, snapshot_size=active.size)

    def start_over(self, offset: int) -> None:
        """Removes everything and goes on, empty, at `offset`, on disk on return. After a crash the
        log is empty, here or there."""
        self.truncate_to(self.segments.first.base_offset)
        with self._refusing():
            self._marks.settle_start(offset)
            if (emptied := self.segments.active).base_offset != offset:
                self.segments.add(self._segment(offset, is_new=True))
                for path in self.segments.drop([emptied]):
                    self._files.remove(path)
            self._snapshots.drop_after(-1)
            self._files.sync_directory(self.directory)
            self._marks.settle_recovery_point(offset)
        self.start_offset = self.end_offset = offset
        self._durability.on_closed(offset)
        self._growth = Growth(self.segments.active, self._config, snapshot_size=0)

    def close(self, *, clean: bool = True) -> None:
        """Syncs everything, so that the next opening need not read the batches."""
        if not clean or self.failure is not None:
            return
        with self._refusing():
            for file in self.segments.active.flush_indexes():
                file.sync()
            if self.end_offset not in self._snapshots.offsets:
                self._snapshots.take(self.producers, self.end_offset)
        self.sync()
        if self.recovery_point < self.end_offset:  # `fsync: never` synced nothing
            with self._refusing():
                self._sync_everything()

    def _sync_everything(self) -> None:
        self.epochs.store()
        self.segments.sync_files(from_offset=self.recovery_point)
        self._files.sync_directory(self.directory)
        self._files.sync_directory(self.directory.parent)
        self._durability.on_closed(self.end_offset)

    def note_cleaned(self, *, cleaned_to: int, deletes_dropped_to: int) -> None:
        """Stores the offsets, on disk before the swap, up to which compaction is about to remove
        records."""
        with self._refusing():
            self._marks.settle_recovery_point(self.recovery_point)
            self._marks.note_cleaned(cleaned_to, deletes_dropped_to)

    def note_compacted(self, first_dirty_offset: int) -> None:
        """Stores that all swaps of a compaction are done: every key is unique below."""
        with self._refusing():
            self._marks.note_compacted(first_dirty_offset)

    def swap_in(self, base_offset: int, end_offset: int, *, size: int) -> RemovalJob:
        """Puts the cleaned segment of `size` bytes, complete and synced, in place of the segments
        that begin in [base_offset, end_offset)."""
        gone = [each for each in self.segments if base_offset <= each.base_offset < end_offset]
        assert self.segments.active not in gone, "the active segment is never compacted"
        if not gone or gone[0].base_offset != base_offset:  # retention has removed it already
            return RemovalJob(self._files, cleaned_paths(self.directory, base_offset))
        with self._refusing():
            found = self._files.size(cleaned_path(self.directory, base_offset, LOG))
            if found != size:  # a later write to it would leave readers with a partial segment
                raise StorageFailed(
                    "compacted segment differs from the written one",
                    topic=self.topic,
                    partition=self.partition,
                    base_offset=base_offset,
                    size=found,
                    written=size,
                )
            try:
                commit_swap(self._files, self.directory, base_offset, end_offset)
                paths = finish_swap(self._files, self.directory, base_offset, end_offset)
            except OSError as error:
                if not self._files.exists(cleaned_path(self.directory, base_offset, LOG)):
                    # decided on disk: after a failure only a new opening can go on
                    self.sync_failed(error)
                raise
            fresh = self._segment(base_offset, is_new=False)
            fresh.size = size
        self.segments.replace(gone, [fresh])
        return RemovalJob(self._files, paths)

    def _segment(self, base_offset: int, *, is_new: bool) -> Segment:
        return Segment(
            self._files,
            self.directory,
            base_offset,
            index_interval=self._config.index_interval_bytes,
            is_new=is_new,
        )

    def _make_room(self, size: int, last_offset: int, max_timestamp: int) -> Segment:
        """Returns the segment for the next batch; rolls if that is due. Called only in rare
        cases."""
        segment = self.segments.active
        if self._growth.must_roll(segment, size, last_offset, max_timestamp):
            self.roll()
            segment = self.segments.active
        elif segment.size - self._growth.snapshot_size > SNAPSHOT_SPACING_BYTES:
            self._take_snapshot()
        if segment.first_timestamp is None:
            segment.first_timestamp = max_timestamp
        self._growth.plan(segment)
        return segment

    def _take_snapshot(self) -> None:
        with self._refusing():
            self._durability.add(self.segments.active.flush_indexes())
            self._snapshots.take(self.producers, self.end_offset)
            bases = {segment.base_offset for segment in self.segments}
            self._snapshots.prune(bases=bases, synced=self.recovery_point)
        self._growth.snapshot_size = self.segments.active.size

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Context manager: turns a refusal of the disk into our error."""
        try:
            yield
        except OSError as error:
            raise self._refusal(error) from error

    def _offline(self, reason: str) -> StorageFailed:
        return StorageFailed(
            "partition is offline since the disk failed it",
            topic=self.topic,
            partition=self.partition,
            reason=reason,
            hint="repair the disk; the partition is opened again when the disk accepts writes",
        )

    def _undo(self, error: OSError) -> StorageFailed:
        """Removes from the file the partial data of a refused write."""
        segment = self.segments.active
        try:
            segment.file.truncate(segment.size)
        except OSError as second:
            self.sync_failed(second)
        return self._refusal(error)

    def _refusal(self, error: OSError) -> StorageFailed:
        refused = refusal_of(self._files, self.directory, error)
        if not self.refused:
            logger.error("%s", refused)
        self.refused = refused
        return StorageFailed(
            refused,
            topic=self.topic,
            partition=self.partition,
            hint="free some space, or repair the disk; appends go on as soon as it accepts writes",
        )
