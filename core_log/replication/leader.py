"""The leader of a partition, without log or network: it decides which records are committed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.core_log.replication.metadata_records import Assignment

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class InSyncProposal:
    """A leader's request to the controller; it is valid only once the controller has written it."""

    in_sync: frozenset[int]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: dict[int, int] = field(default_factory=dict)
    """The registration with which each follower fetched: a later one has proved nothing
    (KIP-903)."""


@dataclass(slots=True)
class FollowerProgress:
    """A leader's state of one follower, in this epoch."""

    offset: int = UNKNOWN  # everything below is on the follower's disk
    start_offset: int = UNKNOWN
    fetched_ms: int = UNKNOWN
    leader_end: int = 0  # the end of the leader's log at that fetch
    caught_up_ms: int = UNKNOWN  # when it last had all of the leader's records
    broker_epoch: int = UNKNOWN
    marks: tuple[int, int] = (0, 0)  # of compaction, as it has stored them
    proved: int = 0  # the newest question after which it began to fetch, see `has_proved`

    def note_fetch(self, offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end:  # it now has the leader's log as of the last fetch
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.offset, self.leader_end, self.fetched_ms = offset, leader_end, now_ms


@dataclass(slots=True, kw_only=True)
class Leader:
    """Decides which records are committed. A follower that fetches offset N has all below N on its
    disk; the high watermark is the lowest synced offset of all in-sync replicas, including the
    leader. It stands still while fewer than `min_in_sync` are in sync, so that a replica that drops
    out then still has everything committed."""

    broker_id: int
    leader_epoch: int
    assignment: Assignment
    in_sync: frozenset[int]
    partition_epoch: int = 0
    end_offset: int = 0
    durable_offset: int = 0
    high_watermark: int = 0
    min_in_sync: int = 1
    lag_ms_max: int = 30_000
    started_ms: int = 0
    pending: InSyncProposal | None = None
    epoch_start_offset: int = field(init=False)
    progress: dict[int, FollowerProgress] = field(init=False)
    _counted: tuple[FollowerProgress, ...] = field(init=False)

    def __post_init__(self) -> None:
        assert self.broker_id in self.in_sync, "a leader is always in sync with itself"
        assert self.in_sync <= set(self.assignment.replicas), "only replicas can be in sync"
        self._begin_epoch(self.started_ms)

    def _begin_epoch(self, now_ms: int) -> None:
        """Begins an epoch: followers are unknown until they fetch; those in sync get the usual time
        to do so."""
        self.epoch_start_offset = self.end_offset
        self.progress = {
            replica: FollowerProgress(caught_up_ms=now_ms if replica in self.in_sync else UNKNOWN)
            for replica in self.assignment.replicas
            if replica != self.broker_id
        }
        self.pending = None
        self._count(self.in_sync)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether anything is committed, so that acks=all is possible (min.insync.replicas)."""
        return len(self.in_sync) >= self.assignment.enough(self.min_in_sync)

    @property
    def knows_latest(self) -> bool:
        """Whether "latest" may be answered: until a record of this epoch is committed, an older
        leader may have committed more than is known here (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    def waits_for(self, follower: int) -> bool:
        """Whether nothing is committed without that follower: it is in sync, or about to be."""
        proposed = () if self.pending is None else self.pending.in_sync
        return follower in self.in_sync or follower in proposed

    def has_proved(self, question: int) -> bool:
        """Whether all in sync have begun to fetch in this epoch after that question. A new leader
        would be one of them, so that there was none when it was asked."""
        return self.has_enough_in_sync and all(each.proved >= question for each in self._counted)

    def on_min_in_sync(self, min_in_sync: int) -> None:
        """Called when the topic's setting has changed."""
        self.min_in_sync = min_in_sync
        self._advance()

    def on_append(self, end_offset: int) -> None:
        assert end_offset >= self.end_offset, "a leader never shortens its own log"
        self.end_offset = end_offset

    def on_durable(self, offset: int) -> None:
        """Called when our own disk has everything below `offset`."""
        assert self.durable_offset <= offset <= self.end_offset, (
            "what is on disk only grows, and was written before"
        )
        self.durable_offset = offset
        self._advance()

    def on_follower_fetch(
        self,
        follower: int,
        offset: int,
        now_ms: int,
        *,
        start_offset: int = 0,
        broker_epoch: int = UNKNOWN,
        marks: tuple[int, int] = (0, 0),
        start_least: int = 0,
        marks_least: tuple[int, int] = (0, 0),
        may_join: bool = True,
        proved: int = 0,
    ) -> InSyncProposal | None:
        """Returns a proposal if this fetch shows that the follower has caught up; a fenced one may
        not join, nor one with a start or marks below the least: it may be elected at once. One from
        beyond our end shows nothing: its offset is out of range."""
        if offset > self.end_offset:
            return None
        progress = self.progress[follower]
        progress.note_fetch(offset, self.end_offset, now_ms)
        progress.start_offset, progress.broker_epoch = start_offset, broker_epoch
        progress.marks, progress.proved = marks, max(progress.proved, proved)
        if follower in self.in_sync:
            self._advance()
            return None
        has_caught_up = offset >= max(self.high_watermark, self.epoch_start_offset)
        has_caught_up = has_caught_up and start_offset >= start_least
        has_caught_up = has_caught_up and _reach(marks, marks_least)
        return self._propose(self.in_sync | {follower}) if has_caught_up and may_join else None

    def on_tick(self, now_ms: int) -> InSyncProposal | None:
        """Returns a proposal without the followers that have lagged for too long."""
        lagging = {
            replica
            for replica in self.in_sync - {self.broker_id}
            if self._lags(self.progress[replica], now_ms)
        }
        return self._propose(self.in_sync - lagging) if lagging else None

    def _lags(self, progress: FollowerProgress, now_ms: int) -> bool:
        if UNKNOWN < progress.offset < self.high_watermark:
            return True  # it has lost committed records, so it must not be elected
        return now_ms - progress.caught_up_ms > self.lag_ms_max

    def resign(self) -> InSyncProposal:
        """Returns the proposal of a set without us: our disk no longer proves what we wrote in this
        epoch, and followers may have more of it than we keep. Those who count stay the same, since
        an earlier proposal may yet be written."""
        others = self.in_sync - {self.broker_id}
        epochs = {each: self.progress[each].broker_epoch for each in others}
        self.pending = InSyncProposal(others, self.leader_epoch, self.partition_epoch, epochs)
        return self.pending

    def on_in_sync(
        self,
        in_sync: Iterable[int],
        partition_epoch: int,
        *,
        min_in_sync: int,
        assignment: Assignment,
    ) -> None:
        """Called when the controller has written this set, proposed by us or not. The minimum and
        the assignment that are in force then come with it: the set alone could let the mark move
        once too often."""
        if partition_epoch <= self.partition_epoch:
            return
        assert {*assignment.replicas} >= {*self.progress}, "a removal begins an epoch"
        for replica in assignment.replicas:
            if replica != self.broker_id and replica not in self.progress:
                self.progress[replica] = FollowerProgress()
        self.min_in_sync, self.assignment = min_in_sync, assignment
        self.in_sync, self.partition_epoch = frozenset(in_sync), partition_epoch
        self.pending = None
        self._count(self.in_sync)

    def on_refused(self, proposal: InSyncProposal) -> None:
        """Called when the controller has certainly not written it: INELIGIBLE_REPLICA. A lost
        answer is no refusal, nor is an error about epochs, because a retried proposal may have
        been written before. Those wait for the metadata."""
        if self.pending == proposal:
            self.pending = None
            self._count(self.in_sync)

    def on_epoch(
        self,
        leader_epoch: int,
        in_sync: Iterable[int],
        partition_epoch: int,
        now_ms: int,
        *,
        min_in_sync: int,
        assignment: Assignment,
    ) -> None:
        """Called when we were elected again; the followers' progress belongs to the epoch
        before."""
        assert leader_epoch > self.leader_epoch, "leader epochs only grow"
        self.assignment = assignment
        self.leader_epoch, self.partition_epoch = leader_epoch, partition_epoch
        self.in_sync, self.min_in_sync = frozenset(in_sync), min_in_sync
        self._begin_epoch(now_ms)

    def has_announced(self, marks: tuple[int, int]) -> bool:
        """Whether compaction may go so far: whoever is elected next, out of a proposed set, too,
        then tells no lower marks than these."""
        return self.has_enough_in_sync and all(_reach(each.marks, marks) for each in self._counted)

    def agreed_to(self, cleaned_to: int) -> int:
        """Returns how far followers may compact, where that is our own mark: whoever is elected
        next has stored it, too."""
        if not cleaned_to or not self.has_enough_in_sync:
            return 0
        return min([cleaned_to, *(each.marks[0] for each in self._counted)])

    def low_watermark(self, own_start_offset: int) -> int:
        """Returns the lowest log start of the in-sync replicas and of those about to be."""
        return min([own_start_offset, *(each.start_offset for each in self._counted)])

    def has_deleted(self, start_offset: int) -> bool:
        """Whether a request to delete up to our start may be answered: whoever is elected next, out
        of a proposed set, too, then serves nothing older."""
        return self.has_enough_in_sync and self.low_watermark(start_offset) >= start_offset

    def _propose(self, in_sync: frozenset[int]) -> InSyncProposal | None:
        """Returns one proposal at a time. While it is open both sets count, since the controller
        may already elect from either."""
        if self.pending is not None:
            return None
        epochs = {each: self.progress[each].broker_epoch for each in in_sync - {self.broker_id}}
        self.pending = InSyncProposal(in_sync, self.leader_epoch, self.partition_epoch, epochs)
        self._count(self.in_sync | in_sync)
        return self.pending

    def _count(self, in_sync: frozenset[int]) -> None:
        self._counted = tuple(self.progress[each] for each in in_sync - {self.broker_id})
        self._advance()

    def _advance(self) -> None:
        if not self.has_enough_in_sync:
            return
        held = self.durable_offset
        for progress in self._counted:
            if progress.offset < held:
                held = progress.offset
        if held > self.high_watermark:
            self.high_watermark = held


def _reach(taken: tuple[int, int], marks: tuple[int, int]) -> bool:
    return taken[0] >= marks[0] and taken[1] >= marks[1]


def choose_read_replica(
    leader: Leader, *, rack: str, racks: Mapping[int, str | None], offset: int
) -> int | None:
    """Returns a follower in the client's rack that has the offset; None for the leader. `racks` are
    those of the brokers that are alive. The rules are those of Kafka's RackAwareReplicaSelector: a
    replica that is not in sync would keep the client behind for as long as it lags."""
    if not rack or racks.get(leader.broker_id) == rack:
        return None
    near = [
        (progress.offset, progress.caught_up_ms, replica)
        for replica, progress in leader.progress.items()
        if replica in leader.in_sync
        and racks.get(replica) == rack
        and progress.start_offset <= offset <= progress.offset
    ]
    return max(near)[2] if near else None
