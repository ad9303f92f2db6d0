"""One partition on this broker: its log, its role (leader or follower), and the requests that wait
for either."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import Protocol
from uuid import UUID

from headwater.core_log.broker.metadata_quorum import MetadataQuorum
from headwater.core_log.foundation.errors import (
    HeadwaterError,
    LogUnavailable,
    OffsetOutOfRange,
    StorageFailed,
)
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.fetch_frames import FetchLine, FetchPart
from headwater.core_log.replication.follower import Follower, find_divergence
from headwater.core_log.replication.leader import Leader
from headwater.core_log.replication.metadata_records import PartitionRecord
from headwater.core_log.storage.files import FileRange
from headwater.core_log.storage.partition_log import PartitionLog

DISK_WAIT_S_MAX = 1.0
PROOF_WAIT_S_MAX = 1.0
"""How long a proof of leadership is waited for; after it the client is told to ask again."""

Wake = Callable[[], None]
CommitWaiter = Callable[[ErrorCode], None]
"""Called with NONE once an offset is committed, or with the reason why it will not be here."""
logger = logging.getLogger(__name__)


def call(wake: Wake) -> None:
    """Calls a waiter; its error must not leave the other waiters waiting for ever."""
    try:
        wake()
    except Exception:
        logger.exception("a waiter of a partition failed")


def tell(waiter: CommitWaiter, code: ErrorCode) -> None:
    """Calls a waiter with its outcome, in the same way."""
    try:
        waiter(code)
    except Exception:
        logger.exception("a waiter of a partition failed")


class Reach(Enum):
    """How far a reader may read."""

    END = "end"  # a follower: everything written
    COMMITTED = "high watermark"  # everything that survives a crash
    STABLE = "last stable offset"  # the decided part of that


class Flusher(Protocol):
    """Makes written records durable; see `group_commit.py`."""

    def note_write(self, partition: "Partition", *, is_urgent: bool) -> None: ...
    def goes_along(self, partition: "Partition") -> None: ...


class Partition:
    """Connects a PartitionLog with its role: every change of the high watermark passes through
    here, so that waiting producers and fetches are woken in one place."""

    def __init__(
        self,
        topic_id: UUID,
        log: PartitionLog,
        role: Leader | Follower | MetadataQuorum,
        flusher: Flusher,
    ) -> None:
        """`role` says what is committed; the metadata partition has the quorum for it."""
        self.topic, self.index, self.topic_id = log.topic, log.partition, topic_id
        self.log, self._flusher = log, flusher
        self.role = role
        self.leader: Leader | MetadataQuorum | None = None
        """The role, while this broker leads the partition."""
        if not isinstance(role, Follower):
            self.leader = role
        self.is_replicated = False
        """Whether other brokers have replicas of it, as the metadata says."""
        self.drops = 1
        """How often compaction has dropped deletes or ends of transactions, counted from 1. With
        the leader epoch it is never the same again: an opened log has a later one."""
        self._commit_waiters: deque[tuple[int, CommitWaiter]] = deque()
        self._sync_waiters: deque[tuple[int, Wake]] = deque()
        self._fetch_waiters: dict[Wake, bool] = {}
        self._follower_waiters: dict[Wake, None] = {}
        self._progress_waiters: list[tuple[Callable[[], bool], asyncio.Event]] = []
        self._question = 0
        """The newest question that a proof of leadership is wanted for."""
        self.is_deleted = False
        self.is_recovering = False
        """Markers that a crash may have removed are being written again, because readers may have
        seen them. Nothing is served meanwhile."""
        self.is_whole = False
        """It was opened again, and no earlier write is missing."""

    def take_over(self, failed: "Partition") -> None:
        """Takes over from a partition whose disk failed. Losses of an earlier opening may not be
        handled yet."""
        was_whole = failed.is_whole or not failed.is_recovering
        self.is_recovering = True
        self.is_whole = was_whole and self.log.end_offset >= failed.log.end_offset

    def begin_epoch(self) -> None:
        """Later appends are in this leader's epoch, but not markers written again: a reader may
        have passed them, and would take an epoch that ends below it for a loss."""
        self.is_recovering = False
        self.log.begin_epoch(self.leader_epoch)

    @property
    def leader_epoch(self) -> int:
        return self.role.leader_epoch

    @property
    def high_watermark(self) -> int:
        return self.role.high_watermark

    @property
    def follower(self) -> Follower | None:
        """The role, while another broker leads the partition, or none does."""
        return self.role if isinstance(self.role, Follower) else None

    def lead(self, leader: Leader) -> None:
        """Takes the lead over records that it followed so far."""
        self.role = self.leader = leader
        self.begin_epoch()
        self.wake()

    def follow(self, follower: Follower) -> None:
        """Follows from now on; nothing that waits for this leader is answered by it."""
        self.role, self.leader, self.is_recovering = follower, None, False
        self.wake()
        self._end_sync_waits()
        if not self.log.is_offline:
            self.log.truncate_to(self.log.end_offset)  # an epoch without records did not begin

    def leave(self) -> None:
        """This broker has no replica any more: nothing that waits is answered by it."""
        self.leader = None
        self.wake()
        self._end_sync_waits()

    @property
    def last_stable_offset(self) -> int:
        """Everything below is on disk and in no open transaction, whose start may be deleted."""
        unstable = self.log.producers.first_unstable_offset()
        committed = self.role.high_watermark
        if unstable is None:
            return committed
        return min(committed, max(unstable, self.log.start_offset))

    def limit(self, reach: Reach) -> int:
        if reach is Reach.COMMITTED:
            return self.role.high_watermark
        return self.last_stable_offset if reach is Reach.STABLE else self.log.end_offset

    def on_written(self, *, is_urgent: bool) -> None:
        """Called after a leader's append; a waiting fetch can make the sync urgent."""
        assert self.leader is not None, "only a leader appends"
        self.leader.on_append(self.log.end_offset)
        self._flusher.note_write(self, is_urgent=is_urgent or self._is_awaited)
        if self._follower_waiters:  # they need not wait for our disk
            self.wake_followers()

    def append_fetched(self, batches: memoryview, *, now_ms: int) -> None:
        """Appends what the leader has sent; a sync follows at once."""
        follower = self.follower
        assert follower is not None, "only a follower copies its leader"
        try:
            self.log.append_as_follower(batches, now_ms=now_ms)
        finally:
            follower.on_append(self.log.end_offset, self.log.last_epoch)
            self._flusher.note_write(self, is_urgent=True)

    def on_durable(self) -> None:
        """Called when the log's durable offset may have moved."""
        self.role.on_durable(self.log.durable_offset)
        self.wake()

    def wake(self) -> None:
        if self.leader is None or self.log.failure is not None or self.is_deleted:
            self._wake_refused()
        else:
            committed, waiters = self.role.high_watermark, self._commit_waiters
            while waiters and waiters[0][0] <= committed:
                tell(waiters.popleft()[1], ErrorCode.NONE)
            if self._sync_waiters:
                self._wake_synced()
        if self._fetch_waiters:  # a follower has readers, too
            for wake in tuple(self._fetch_waiters):
                call(wake)

    def _wake_synced(self) -> None:
        synced, syncs = self.log.settled_offset, self._sync_waiters
        while syncs and (syncs[0][0] <= synced or self.is_offline):
            call(syncs.popleft()[1])

    def _wake_refused(self) -> None:
        """Nothing is committed here any more: the partition is offline, deleted or led elsewhere,
        for good as far as those who wait are concerned."""
        self._refuse_waiters(self.refusal)
        self._wake_synced()
        self.wake_followers()
        self._on_progress()

    def wake_followers(self) -> None:
        """Tells waiting followers of news: of records, of another log start, or of another role."""
        for wake in tuple(self._follower_waiters):
            call(wake)

    def _refuse_waiters(self, reason: ErrorCode) -> None:
        """Tells all that wait for the high watermark that it will not come for them."""
        waiters, self._commit_waiters = self._commit_waiters, deque()
        for _, waiter in waiters:
            tell(waiter, reason)

    def _end_sync_waits(self) -> None:
        syncs, self._sync_waiters = self._sync_waiters, deque()
        for _, wake in syncs:
            call(wake)

    @property
    def refusal(self) -> ErrorCode:
        """The reason why nothing more will be committed by this leader, or NONE."""
        if self.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE if self.leader is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def is_replicated_by(self, broker_id: int) -> bool:
        """Whether that broker follows this leader; only followers may read uncommitted records."""
        return self.leader is not None and broker_id in self.leader.progress

    def waits_for(self, broker_id: int) -> bool:
        """Whether nothing is committed here without that follower."""
        return isinstance(self.leader, Leader) and self.leader.waits_for(broker_id)

    def is_copied_to(self, broker_id: int) -> bool:
        """Whether that broker follows this leader, and has not caught up."""
        return self.is_replicated_by(broker_id) and not self.waits_for(broker_id)

    def on_follower_fetch(
        self,
        follower: int,
        part: FetchPart,
        *,
        broker_epoch: int,
        marks: tuple[int, int] = (0, 0),
        may_join: bool = True,
        proved: int = 0,
        now_ms: int,
    ) -> bool:
        """Handles a replica's request, by which it says that its disk has everything below the
        offset. One whose log diverges says nothing. Returns True if there is a new proposal."""
        leader = self.leader
        if not isinstance(leader, Leader) or part.leader_epoch != leader.leader_epoch:
            return False
        try:
            diverging = find_divergence(
                self.log.epochs, last_fetched_epoch=part.last_epoch, fetch_offset=part.offset
            )
        except OffsetOutOfRange:
            return False
        if diverging is not None or not self.is_replicated_by(follower):
            return False
        before = leader.high_watermark
        proposal = leader.on_follower_fetch(
            follower,
            part.offset,
            now_ms,
            start_offset=part.log_start_offset,
            broker_epoch=broker_epoch,
            marks=marks,
            start_least=self.log.start_offset,
            marks_least=(self.log.cleaned_to, self.log.deletes_dropped_to),
            may_join=may_join,
            proved=proved,
        )
        if leader.high_watermark > before:
            self.wake()
        if self._progress_waiters:
            self._on_progress()
        return proposal is not None

    def on_record(self, record: PartitionRecord, *, min_in_sync: int, now_ms: int) -> None:
        """Applies a new record of the cluster's metadata about this leader."""
        leader, epoch = self.leader, record.leader_epoch
        assert isinstance(leader, Leader), "the metadata says nothing about its own partition"
        in_sync, version, assignment = record.in_sync, record.partition_epoch, record.assignment
        if epoch > leader.leader_epoch:
            self.log.begin_epoch(epoch)
            leader.on_epoch(
                epoch, in_sync, version, now_ms, min_in_sync=min_in_sync, assignment=assignment
            )
        else:
            leader.on_in_sync(in_sync, version, min_in_sync=min_in_sync, assignment=assignment)
        self.wake_followers()
        self.wake()
        self._on_progress()
        if not leader.has_enough_in_sync:
            self._refuse_waiters(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def on_settings(self, *, min_in_sync: int, allows_unclean: bool) -> None:
        """Called when the topic's settings have changed."""
        if isinstance(self.role, Leader):
            self.role.on_min_in_sync(min_in_sync)
        elif isinstance(self.role, Follower):
            self.role.allows_unclean = allows_unclean
        self.wake()
        self._on_progress()

    @property
    def is_served(self) -> bool:
        return not self.is_offline and not self.is_recovering

    @property
    def is_offline(self) -> bool:
        return self.is_deleted or self.log.is_offline

    def when_committed(self, end_offset: int, waiter: CommitWaiter) -> None:
        """Calls `waiter` once the high watermark reaches `end_offset`, or will not reach it
        here."""
        refusal = self.refusal
        if refusal is not ErrorCode.NONE or self.role.high_watermark >= end_offset:
            waiter(refusal)
        elif not self._commit_waiters or self._commit_waiters[-1][0] <= end_offset:
            self._commit_waiters.append((end_offset, waiter))
        else:  # a retry waits for an offset older than the newest append's
            added = [*self._commit_waiters, (end_offset, waiter)]
            self._commit_waiters = deque(sorted(added, key=lambda each: each[0]))

    async def wait_committed(self, end_offset: int) -> None:
        """Returns once the high watermark has reached `end_offset`."""
        outcome = self.refusal
        if outcome is ErrorCode.NONE and self.role.high_watermark < end_offset:
            done = asyncio.Event()

            def settle(code: ErrorCode) -> None:
                nonlocal outcome
                outcome = code
                done.set()

            self._flusher.note_write(self, is_urgent=True)
            self.when_committed(end_offset, settle)
            await done.wait()
        self._check(outcome)

    @property
    def low_watermark(self) -> int:
        """No replica in sync, or about to be, has anything older."""
        start_offset = self.log.start_offset
        return (
            self.leader.low_watermark(start_offset)
            if isinstance(self.leader, Leader)
            else start_offset
        )

    @property
    def agreed_to(self) -> int:
        """The mark of compaction that all in sync have stored, as far as is known here."""
        if isinstance(self.leader, Leader):
            return self.leader.agreed_to(self.log.cleaned_to)
        return self.role.agreed_to if isinstance(self.role, Follower) else 0

    async def delete_records_before(self, offset: int) -> None:
        """Moves up the start of the log; returns once all in sync have followed, or this broker no
        longer leads."""
        self.log.delete_records_before(offset)
        leader, start_offset = self.leader, self.log.start_offset
        if isinstance(leader, Leader):
            await self._until(lambda: leader.has_deleted(start_offset))

    async def announce_marks(self, *, wait_s_max: float) -> bool:
        """Whether all in sync have stored the marks of compaction in that time; a follower
        announces none."""
        leader, marks = self.leader, (self.log.cleaned_to, self.log.deletes_dropped_to)
        if not isinstance(leader, Leader):
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s_max):
                await self._until(lambda: leader.has_announced(marks))
        is_announced = self.leader is leader and leader.has_announced(marks)
        if is_announced:
            self.wake_followers()  # they may compact as far
        return is_announced

    async def wait_proved(self, question: int) -> None:
        """Returns once followers have proved that this broker leads since that question."""
        leader = self.leader
        if isinstance(leader, Leader):
            self._question = max(self._question, question)
            with suppress(TimeoutError):
                async with asyncio.timeout(PROOF_WAIT_S_MAX):
                    await self._until(lambda: leader.has_proved(question))
            if self.leader is not leader or not leader.has_proved(question):
                self._check(self.refusal)
                raise LogUnavailable(
                    "leadership is not proved", topic=self.topic, partition=self.index
                )
        self.check_led()

    def check_led(self) -> None:
        self._check(self.refusal)

    def is_asked(self, follower: int) -> bool:
        """Whether that follower's next fetch is waited for, and not the one that it has sent."""
        leader = self.leader
        if not isinstance(leader, Leader) or follower not in leader.progress:
            return False
        return leader.progress[follower].proved < self._question

    async def _until(self, met: Callable[[], bool]) -> None:
        """Returns once followers have brought it about, or this broker no longer leads."""
        if met() or self.refusal is not ErrorCode.NONE:
            return
        waiter = (met, asyncio.Event())
        self._progress_waiters.append(waiter)
        self.wake_followers()
        try:
            await waiter[1].wait()
        finally:
            self._progress_waiters.remove(waiter)

    def _on_progress(self) -> None:
        is_over = self.refusal is not ErrorCode.NONE
        for met, event in self._progress_waiters:
            if is_over or met():
                event.set()

    def when_synced(self, end_offset: int, wake: Wake) -> None:
        """Calls `wake` once our own disk has everything below, including markers, or never will.
        The high watermark does not tell: a decided marker lets it pass without a sync."""
        if self.log.settled_offset >= end_offset or self.is_offline:
            wake()
            return
        self._sync_waiters.append((end_offset, wake))
        self._flusher.note_write(self, is_urgent=True)

    def check_synced(self) -> None:
        """Raises if this leader's sync will never come. A deleted partition needs none."""
        if not self.is_deleted:
            self._check(self.refusal)

    def _check(self, code: ErrorCode) -> None:
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            raise StorageFailed("partition is offline", topic=self.topic, partition=self.index)
        if code is not ErrorCode.NONE:
            raise LogUnavailable(
                "record is not committed by this leader",
                topic=self.topic,
                partition=self.index,
                reason=code.name,
            )

    def park(self, wake: Wake, *, reach: Reach) -> None:
        """Calls `wake` whenever more may be readable, until `unpark`."""
        self._fetch_waiters[wake] = reach is Reach.STABLE
        is_behind = self.role.high_watermark < self.log.end_offset
        if self.leader is not None and is_behind and self._is_awaited:
            self._flusher.note_write(self, is_urgent=True)

    def unpark(self, wake: Wake) -> None:
        self._fetch_waiters.pop(wake, None)

    def park_follower(self, wake: Wake) -> None:
        """Calls `wake` whenever there is news for a follower, until `unpark_follower`."""
        self._follower_waiters[wake] = None

    def unpark_follower(self, wake: Wake) -> None:
        self._follower_waiters.pop(wake, None)

    @property
    def has_readers(self) -> bool:
        """Whether clients wait here for more."""
        return bool(self._fetch_waiters)

    @property
    def _is_awaited(self) -> bool:
        """Whether a sync could answer some fetch. A reader of decided records waits only for a
        decision in an open transaction, and that syncs."""
        if not self._fetch_waiters:
            return False
        unstable = self.log.producers.first_unstable_offset()
        is_open = unstable is not None and unstable <= self.role.high_watermark
        return not is_open or not all(self._fetch_waiters.values())

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
    ) -> None:
        """Ends a transaction here. The decision is on disk already, so the marker needs no sync of
        its own, which would only delay the next transaction: recovery would write it again."""
        assert self.leader is not None, "only a leader appends"
        offset = self.log.append_marker(
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=self.log.epochs.latest if self.is_recovering else self.leader_epoch,
            now_ms=now_ms,
        )
        self.leader.on_append(self.log.end_offset)
        self.log.note_marker_durable(offset)
        self._flusher.goes_along(self)
        self.on_durable()

    def close_waiters(self) -> None:
        """Wakes all waiters, because the partition is closed."""
        self.is_deleted = True
        self.wake()


async def bring_to_disk(partitions: Iterable[Partition | None]) -> None:
    """Waits until the high watermarks reach the present end. The time is limited: a follower or a
    disk that hangs leaves them where they are."""
    waits = [
        asyncio.ensure_future(each.wait_committed(each.log.end_offset))
        for each in partitions
        if each is not None and each.high_watermark < each.log.end_offset
    ]
    if waits:
        done, late = await asyncio.wait(waits, timeout=DISK_WAIT_S_MAX)
        for wait in late:
            wait.cancel()
        for wait in done:
            wait.exception()  # an offline partition answers with its error


FetchedPartition = FetchLine[FileRange]


def read_line(
    partition: Partition, part: FetchPart, *, reach: Reach, bytes_max: int, at_least_one: bool
) -> FetchedPartition:
    """Returns one partition's line of the answer; errors are answers, too."""
    if (code := check_epoch(partition, part.leader_epoch)) is not ErrorCode.NONE:
        return FetchLine(code)
    if partition.is_offline:
        return FetchLine(ErrorCode.KAFKA_STORAGE_ERROR)
    log = partition.log
    marks = (partition.high_watermark, partition.last_stable_offset, log.start_offset)
    below = partition.limit(reach)
    try:
        diverging = find_divergence(
            log.epochs, last_fetched_epoch=part.last_epoch, fetch_offset=part.offset
        )
        if diverging is not None:
            return FetchLine(0, *marks, diverging=diverging)
        if not log.start_offset <= part.offset <= log.end_offset:
            raise OffsetOutOfRange("offset is not in this log", offset=part.offset)
        ranges: list[FileRange] = []
        if part.offset < below and bytes_max > 0:
            ranges = log.read_across(
                part.offset, below=below, bytes_max=bytes_max, at_least_one=at_least_one
            )
        aborted: list[tuple[int, int]] | None = [] if reach is Reach.STABLE else None
        if aborted is not None and ranges:
            found = log.find_aborted(part.offset, min(below, ranges[-1].next_offset))
            aborted += [(each.producer_id, each.first_offset) for each in found]
    except OffsetOutOfRange:
        return FetchLine(ErrorCode.OFFSET_OUT_OF_RANGE, *marks)
    except (HeadwaterError, OSError):
        return FetchLine(ErrorCode.KAFKA_STORAGE_ERROR, *marks)
    return FetchLine(0, *marks, aborted, ranges, sum(each.size for each in ranges))


def refuse_stranger(partition: Partition, epoch: int) -> ErrorCode:
    """Returns Kafka's error for a client that claims to be a replica and is none of this
    partition's."""
    if (code := check_epoch(partition, epoch)) is not ErrorCode.NONE:
        return code
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH


def check_epoch(partition: Partition, epoch: int) -> ErrorCode:
    """Returns the error if a client's leader epoch is older or newer than the real one; -1 means
    that it knows none."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return ErrorCode.NONE
    if epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
