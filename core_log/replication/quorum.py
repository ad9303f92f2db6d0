"""The metadata quorum: Raft in Kafka's form, where followers fetch, as a state machine without log,
network, clock or chance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Protocol

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.replication.follower import EpochEnd, find_divergence
from headwater.core_log.replication.voters import (
    BEFORE_THE_LOG,
    NOBODY,
    Ballot,
    BallotAnswer,
    Count,
    ElectionState,
    ReplicaKey,
    VoterHistory,
    Voters,
    is_majority,
)


class QuorumLog(Protocol):
    """The log of the metadata as far as the quorum must know it; only its owner changes it."""

    @property
    def start_offset(self) -> int:
        """Returns the offset below which a snapshot has taken the place of records."""
        ...

    @property
    def end_offset(self) -> int: ...
    @property
    def durable_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int:
        """Returns the epoch of the newest record; -1 without one."""
        ...

    def end_offset_for(self, epoch: int) -> tuple[int, int]: ...


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class Timeouts(NamedTuple):
    """Milliseconds. They decide only when something happens, never what may happen."""

    fetch_ms: int = 1_500
    election_ms: int = 500
    """The least time that an election may take; up to as much is added by chance."""
    retry_ms: int = 100

    @property
    def check_quorum_ms(self) -> int:
        return self.fetch_ms * 3 // 2


@dataclass(frozen=True, slots=True)
class VoteMessage:
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochMessage:
    """From a new leader to a voter that has not fetched from it yet."""

    voter: ReplicaKey
    epoch: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpochMessage:
    """From a leader that resigns; the first of the successors stands at once."""

    voter: ReplicaKey
    epoch: int
    successors: tuple[ReplicaKey, ...]


Message = VoteMessage | BeginQuorumEpochMessage | EndQuorumEpochMessage


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first record of a leader's epoch. Nothing older is committed by counting replicas."""

    leader: int


@dataclass(frozen=True, slots=True)
class VotersChange:
    """The record of a new set of voters."""

    voters: Voters


ControlRecord = LeaderChange | VotersChange


@dataclass(frozen=True, slots=True)
class QuorumEffects:
    """The work to be done, in this order: `store` is on disk before anything of the rest."""

    store: ElectionState | None = None
    truncate_to: int | None = None
    append: tuple[ControlRecord, ...] = ()
    send: tuple[Message, ...] = ()
    commit_to: int | None = None
    role: Role | None = None
    """The new role, if it has changed."""
    ends_doubt: bool = False
    """The log has everything again that it may have lost."""


@dataclass(frozen=True, slots=True)
class QuorumAnswer:
    """An answer to a fetch, as far as the quorum must know it."""

    sender: int
    epoch: int
    leader: int
    is_from_leader: bool
    """Whether the sender leads in that epoch; the rest of an answer counts only then."""
    diverging: EpochEnd | None = None


class QuorumFetch(NamedTuple):
    """A replica's request to the leader; without one anybody may be asked who leads."""

    leader: int
    epoch: int
    offset: int
    last_epoch: int


class QuorumRefusal(Enum):
    """The reason why the voters cannot be changed now."""

    NOT_LEADER = "this node does not lead the quorum"
    EPOCH_UNCOMMITTED = "the leader has committed nothing in its epoch yet"
    CHANGE_UNCOMMITTED = "the last change of the voters is not committed yet"
    MORE_THAN_ONE = "only one voter can be added or removed at once"
    NOBODY_LEFT = "the last voter cannot be removed"
    NOT_CAUGHT_UP = "a new voter has not fetched all that is committed"


class Quorum:
    """One node's part in the quorum. A node that is no voter follows like one, and never stands."""

    def __init__(
        self,
        replica: ReplicaKey,
        log: QuorumLog,
        *,
        stored: ElectionState,
        voters: VoterHistory,
        timeouts: Timeouts,
        jitter_ms: Callable[[], int],
        now_ms: int,
        is_doubtful: bool = False,
    ) -> None:
        """`jitter_ms` returns what is added by chance to the time of an election. A doubtful log
        may have lost records that were on disk."""
        self.is_doubtful = is_doubtful
        self.replica, self._log, self.voters = replica, log, voters
        self._timeouts, self._jitter_ms = timeouts, jitter_ms
        self.epoch, self.voted = stored.epoch, stored.voted
        self.leader, self.role = stored.leader, Role.UNATTACHED
        self.high_watermark = log.start_offset  # what a snapshot holds is committed
        self._deadline_ms, self._retry_ms = now_ms, now_ms
        self._has_leader_resigned = False
        self._left_leader = NOBODY
        """The leader of this epoch that was waited for in vain: followed again only if it says
        itself that it leads, since others may still repeat what they heard before."""
        self._count = Count(frozenset())
        self.epoch_start_offset = 0
        self.progress: dict[ReplicaKey, int] = {}
        """As leader: the offset below which each replica has all on its disk."""
        self.heard_ms: dict[ReplicaKey, int] = {}
        self.caught_up_ms: dict[ReplicaKey, int] = {}
        """As leader: when each replica was last heard, and when it last had everything."""
        self._draft = QuorumEffects()
        if stored.leader == replica.node_id:  # it must not follow itself
            self.leader, self.role = NOBODY, Role.RESIGNED
        elif stored.leader != NOBODY:
            self.role = Role.FOLLOWER
            self._deadline_ms = now_ms + timeouts.fetch_ms
        if log.last_epoch > self.epoch:
            self.epoch, self.voted = log.last_epoch, None
            self.leader, self.role = NOBODY, Role.UNATTACHED
        if not self._is_only_voter and self.role is not Role.FOLLOWER:
            self._deadline_ms = now_ms + self._election_ms()

    @property
    def is_voter(self) -> bool:
        return self.replica in self.voters.latest

    @property
    def may_stand(self) -> bool:
        """A node that was removed goes on standing until that is known to be committed: the others
        may be unable to elect anybody who does not have that record."""
        voters = self.voters
        is_certain = voters.latest_offset < self.high_watermark
        return self.is_voter or (not is_certain and self.replica in voters.before_latest)

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def _is_only_voter(self) -> bool:
        return self.voters.latest == {self.replica}

    @property
    def sent_to(self) -> int:
        """Returns the offset below which a leader may send records. A set of voters that replaces
        an only one must be on its disk before anybody else has it: it would elect alone if it
        lost the record, while the others elect without it."""
        log, voters = self._log, self.voters
        is_first = len(voters.before_latest) == 1 and log.durable_offset <= voters.latest_offset
        return voters.latest_offset if is_first and voters.latest_offset >= 0 else log.end_offset

    def next_deadline_ms(self) -> int:
        """Returns when `on_tick` has something to do."""
        if self.role in (Role.PROSPECTIVE, Role.CANDIDATE) or self._unheard:
            return min(self._deadline_ms, self._retry_ms)
        return self._deadline_ms

    def next_fetch(self) -> QuorumFetch | None:
        """Returns the next fetch; None for a leader, and while records wait for the disk: a fetch
        says that everything below its offset is there."""
        log = self._log
        if self.role is Role.LEADER or log.durable_offset < log.end_offset:
            return None
        if self.role is not Role.FOLLOWER and self.may_stand:  # pre-votes tell it who leads
            return None
        return QuorumFetch(self.leader, self.epoch, log.end_offset, log.last_epoch)

    def on_tick(self, now_ms: int) -> QuorumEffects:
        if self.role is Role.LEADER:
            self._check_quorum(now_ms)
        elif now_ms >= self._deadline_ms:
            self._on_deadline(now_ms)
        if now_ms >= self._retry_ms:
            self._retry(now_ms)
        return self._effects()

    def on_vote(self, asked: Ballot, now_ms: int) -> tuple[BallotAnswer, QuorumEffects]:
        if asked.epoch > self.epoch:
            self._enter_epoch(asked.epoch, NOBODY, now_ms)
        is_granted = asked.epoch == self.epoch and asked.voter == self.replica
        is_granted = is_granted and self._is_grantable(asked, now_ms)
        if is_granted and not asked.is_pre_vote and self.voted != asked.candidate:
            self.voted = asked.candidate
            self._set_role(Role.UNATTACHED)
            self._store()
            self._deadline_ms = now_ms + self._election_ms()
        return BallotAnswer(is_granted, self.epoch, self.leader, self.is_doubtful), self._effects()

    def _is_grantable(self, asked: Ballot, now_ms: int) -> bool:
        log = self._log
        if (asked.last_epoch, asked.end_offset) < (log.last_epoch, log.end_offset):
            return False
        if self.role is Role.LEADER:
            return False
        if asked.is_pre_vote:
            has_leader = self.role is Role.FOLLOWER and now_ms < self._deadline_ms
            return not has_leader or self._has_leader_resigned
        return self.voted == asked.candidate or (self.voted is None and self.leader == NOBODY)

    def on_vote_answer(self, asked: Ballot, answer: BallotAnswer, now_ms: int) -> QuorumEffects:
        is_news = self._learn(answer.epoch, answer.leader, now_ms, sender=asked.voter.node_id)
        if not is_news and asked.epoch == self.epoch:
            role = Role.PROSPECTIVE if asked.is_pre_vote else Role.CANDIDATE
            if self.role is role:
                self._count.note(asked.voter, answer)
                self._on_counted(now_ms)
        return self._effects()

    def on_leader(self, leader: int, epoch: int, now_ms: int) -> QuorumEffects:
        """Called for BeginQuorumEpoch, and for a newer epoch in a request."""
        self._learn(epoch, leader, now_ms, sender=leader)
        return self._effects()

    def on_end_epoch(
        self, epoch: int, successors: Sequence[ReplicaKey], now_ms: int
    ) -> QuorumEffects:
        """Called for EndQuorumEpoch: the first successor stands at once, the others a little
        later, one after the other."""
        self._learn(epoch, NOBODY, now_ms, sender=NOBODY)
        if epoch == self.epoch:
            place = [*successors, self.replica].index(self.replica)
            self._lose_leader(now_ms + place * self._timeouts.election_ms)
        return self._effects()

    def on_fetch(
        self, replica: ReplicaKey, offset: int, last_epoch: int, now_ms: int
    ) -> tuple[EpochEnd | None, QuorumEffects]:
        """Called on the leader for a fetch in its epoch. Returns where the replica's log diverges;
        otherwise it has everything below `offset` on its disk."""
        assert self.role is Role.LEADER, "only a leader is fetched from"
        self.heard_ms[replica] = now_ms
        diverging = find_divergence(self._log, last_fetched_epoch=last_epoch, fetch_offset=offset)
        if diverging is None and offset <= self._log.end_offset:
            self.progress[replica] = offset
            if offset == self._log.end_offset:
                self.caught_up_ms[replica] = now_ms
            self._advance(now_ms)
        return diverging, self._effects()

    def on_fetched(self, answer: QuorumAnswer, now_ms: int) -> QuorumEffects:
        """Called for the answer to our fetch. If it is from the leader of our epoch and does not
        diverge, its records are appended next, and `on_append` is called."""
        self._learn(answer.epoch, answer.leader, now_ms, sender=answer.sender)
        is_leaders = answer.epoch == self.epoch and answer.sender == self.leader
        if is_leaders and not answer.is_from_leader:
            self._lose_leader(now_ms)
        elif is_leaders and self.role is Role.FOLLOWER:
            self._deadline_ms = now_ms + self._timeouts.fetch_ms
            if answer.diverging is not None:
                self._truncate(answer.diverging)
        return self._effects()

    def on_append(
        self,
        voters: Sequence[tuple[int, Voters]] = (),
        *,
        committed_to: int = 0,
        is_at_end: bool = False,
    ) -> QuorumEffects:
        """Called when records are appended, with the sets of voters among them by offset, and the
        leader's high watermark; or `is_at_end`: the leader has no more."""
        for offset, each in voters:
            self.voters.add(offset, each)
        self._commit(min(committed_to, self._log.end_offset))
        if is_at_end and self.role is Role.FOLLOWER and self._log.last_epoch == self.epoch:
            self._end_doubt()  # whoever leads without this vote has all that this node promised
        return self._effects()

    def on_durable(self, now_ms: int) -> QuorumEffects:
        """Called when more of the log is on disk."""
        if self.role is Role.LEADER:
            self._advance(now_ms)
        return self._effects()

    def _end_doubt(self) -> None:
        self._draft = replace(self._draft, ends_doubt=self.is_doubtful)
        self.is_doubtful = False

    def on_snapshot(self, end_offset: int, voters: Voters) -> QuorumEffects:
        """Called when a snapshot of the leader has replaced our log, which now begins and ends
        there."""
        self.voters.start_over(end_offset, voters)
        self._commit(end_offset)
        return self._effects()

    def record_voters(self) -> QuorumEffects:
        """Writes the voters down when another replica begins to follow: without their record, its
        copy of the log would not tell that others elect the leader."""
        voters = self.voters
        if self.role is Role.LEADER and voters.latest_offset == BEFORE_THE_LOG:
            return self._write_voters(voters.latest)
        return self._effects()

    def propose_voters(self, wanted: Voters, now_ms: int) -> QuorumEffects | QuorumRefusal:
        """Changes the voters by one, or from one to three. The new set is in force at once."""
        voters = self.voters.latest
        refusal = self._change_refused(voters, wanted, now_ms)
        if refusal is not None:
            return refusal
        return self._write_voters(wanted)

    def repeat_voters(self) -> QuorumEffects | QuorumRefusal:
        """Writes the same voters once more, of which one listens somewhere else now."""
        return self._record_refused() or self._write_voters(self.voters.latest)

    def _write_voters(self, voters: Voters) -> QuorumEffects:
        self.voters.add(self._log.end_offset, voters)
        self._draft = replace(self._draft, append=(*self._draft.append, VotersChange(voters)))
        return self._effects()

    @property
    def may_record_voters(self) -> bool:
        return self._record_refused() is None

    def _record_refused(self) -> QuorumRefusal | None:
        """Returns why no record of voters can be written now."""
        if self.role is not Role.LEADER:
            return QuorumRefusal.NOT_LEADER
        if self.high_watermark <= self.epoch_start_offset:
            return QuorumRefusal.EPOCH_UNCOMMITTED
        if self.voters.latest_offset >= self.high_watermark:
            return QuorumRefusal.CHANGE_UNCOMMITTED
        return None

    def _change_refused(self, voters: Voters, wanted: Voters, now_ms: int) -> QuorumRefusal | None:
        refusal = self._record_refused()
        if refusal is not None:
            return refusal
        if not wanted:
            return QuorumRefusal.NOBODY_LEFT
        is_first = len(voters) == 1 and len(wanted) == 3 and voters < wanted
        if len(voters ^ wanted) != 1 and not is_first:
            return QuorumRefusal.MORE_THAN_ONE
        late_ms = now_ms - self._timeouts.fetch_ms
        for each in wanted - voters:
            is_live = self.heard_ms.get(each, late_ms) > late_ms
            if not is_live or self.progress.get(each, 0) < self.high_watermark:
                return QuorumRefusal.NOT_CAUGHT_UP
        return None

    def resign(self, now_ms: int) -> QuorumEffects:
        """Gives up the lead, for a stop or because nobody listens."""
        if self.role is Role.LEADER:
            self._resign(now_ms)
        return self._effects()

    def _resign(self, now_ms: int) -> None:
        others = self.voters.latest - {self.replica}
        successors = tuple(sorted(others, key=lambda each: (-self.progress.get(each, 0), each)))
        self._set_role(Role.RESIGNED)
        self.leader = NOBODY
        self._deadline_ms = now_ms + self._election_ms()
        self._send(*(EndQuorumEpochMessage(each, self.epoch, successors) for each in successors))

    def _check_quorum(self, now_ms: int) -> None:
        """A leader that a majority does not listen to resigns: its clients find the next one."""
        self._deadline_ms = now_ms + self._timeouts.retry_ms
        if self._is_only_voter:
            return
        late_ms = now_ms - self._timeouts.check_quorum_ms
        heard = {each for each, at_ms in self.heard_ms.items() if at_ms > late_ms}
        if not is_majority({*heard, self.replica}, self.voters.latest):
            self._resign(now_ms)

    def _on_deadline(self, now_ms: int) -> None:
        if self.may_stand:
            self._stand(now_ms)
            return
        self._leave_leader()  # somebody else may know a newer one
        self._set_role(Role.UNATTACHED)
        self._deadline_ms = now_ms + self._timeouts.fetch_ms

    def _stand(self, now_ms: int) -> None:
        """Asks first whether a vote would be given, so that a node that was cut off does not
        depose a leader whom all others follow."""
        self._set_role(Role.PROSPECTIVE)
        self._leave_leader()
        self._begin_count(now_ms)

    def _be_candidate(self, now_ms: int) -> None:
        self.epoch, self.voted, self.leader = self.epoch + 1, self.replica, NOBODY
        self._left_leader = NOBODY
        self._set_role(Role.CANDIDATE)
        self._store()
        self._begin_count(now_ms)

    def _begin_count(self, now_ms: int) -> None:
        self._count = Count(self.voters.latest)
        self._count.note(self.replica, BallotAnswer(True, self.epoch, NOBODY, self.is_doubtful))
        self._deadline_ms = now_ms + self._election_ms()
        self._retry_ms = now_ms
        self._on_counted(now_ms)

    def _on_counted(self, now_ms: int) -> None:
        if not self._count.has_won:
            return
        if self.role is Role.PROSPECTIVE:
            self._be_candidate(now_ms)
        else:
            self._lead(now_ms)

    def _lead(self, now_ms: int) -> None:
        self._set_role(Role.LEADER)
        self.leader = self.replica.node_id
        self.epoch_start_offset = self._log.end_offset
        self.progress, self.caught_up_ms = {}, {}
        self.heard_ms = dict.fromkeys(self.voters.latest, now_ms)
        self._deadline_ms = now_ms + self._timeouts.check_quorum_ms
        self._retry_ms = now_ms
        self._store()
        self._end_doubt()
        self._draft = replace(self._draft, append=(LeaderChange(self.leader),))

    @property
    def _unheard(self) -> list[ReplicaKey]:
        """Returns the voters that a leader has yet to tell of its epoch."""
        if self.role is not Role.LEADER:
            return []
        return sorted(self.voters.latest - self.progress.keys() - {self.replica})

    def _retry(self, now_ms: int) -> None:
        """Sends again what has not been answered."""
        self._retry_ms = now_ms + self._timeouts.retry_ms
        if self.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            self._send(*(VoteMessage(self._ballot(each)) for each in self._count.unanswered))
        self._send(*(BeginQuorumEpochMessage(each, self.epoch) for each in self._unheard))

    def _ballot(self, voter: ReplicaKey) -> Ballot:
        log, is_pre_vote = self._log, self.role is Role.PROSPECTIVE
        return Ballot(self.replica, voter, self.epoch, log.last_epoch, log.end_offset, is_pre_vote)

    def _lose_leader(self, due_ms: int) -> None:
        """The leader does not lead any more: pre-votes are given, and we stand then."""
        if self.role is Role.FOLLOWER:
            self._has_leader_resigned = True
            self._deadline_ms = min(self._deadline_ms, due_ms)

    def _leave_leader(self) -> None:
        if self.leader != NOBODY:
            self.leader, self._left_leader = NOBODY, self.leader

    def _learn(self, epoch: int, leader: int, now_ms: int, *, sender: int) -> bool:
        """Obeys a newer epoch, and the leader of our own; returns True if that changed anything."""
        if epoch > self.epoch:
            self._enter_epoch(epoch, leader, now_ms)
            return True
        is_news = epoch == self.epoch and leader not in (NOBODY, self.replica.node_id)
        is_hearsay = leader == self._left_leader and sender != leader
        if not is_news or is_hearsay or self.leader == leader:
            return False
        assert self.leader == NOBODY, "an epoch has one leader"
        assert self.role is not Role.LEADER, "an epoch has one leader"
        self._enter_epoch(epoch, leader, now_ms)
        return True

    def _enter_epoch(self, epoch: int, leader: int, now_ms: int) -> None:
        if epoch > self.epoch:
            self.voted, self._left_leader = None, NOBODY
        is_following = leader not in (NOBODY, self.replica.node_id)
        self.epoch, self.leader = epoch, leader if is_following else NOBODY
        self._has_leader_resigned = False
        self._set_role(Role.FOLLOWER if is_following else Role.UNATTACHED)
        wait_ms = self._timeouts.fetch_ms if is_following else self._election_ms()
        self._deadline_ms = now_ms + wait_ms
        self._store()

    def _truncate(self, leaders: EpochEnd) -> None:
        epoch, end = self._log.end_offset_for(leaders.epoch)
        shared = 0 if epoch < 0 else min(end, leaders.end_offset)
        if shared < self.high_watermark:
            raise CorruptLog(
                "the leader of the quorum does not have committed metadata",
                leader=self.leader,
                leader_epoch=self.epoch,
                committed_to=self.high_watermark,
                leader_agrees_to=shared,
            )
        self.voters.truncate_to(shared)
        self._draft = replace(self._draft, truncate_to=shared)

    def _advance(self, now_ms: int) -> None:
        """Commits what a majority of the voters has on disk, once that is of this epoch."""
        log, voters = self._log, self.voters
        held = {**self.progress, self.replica: log.durable_offset}
        ends = sorted((held.get(each, 0) for each in voters.latest), reverse=True)
        reached = ends[len(ends) // 2]
        if reached > self.epoch_start_offset:
            self._commit(reached)
        if not self.is_voter and self.high_watermark > voters.latest_offset:
            self._resign(now_ms)

    def _commit(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._draft = replace(self._draft, commit_to=offset)

    def _election_ms(self) -> int:
        return self._timeouts.election_ms + self._jitter_ms()

    def _set_role(self, role: Role) -> None:
        if role is not self.role:
            self.role = role
            self._draft = replace(self._draft, role=role)

    def _store(self) -> None:
        state = ElectionState(self.epoch, self.leader, self.voted)
        self._draft = replace(self._draft, store=state)

    def _send(self, *messages: Message) -> None:
        if messages:
            self._draft = replace(self._draft, send=(*self._draft.send, *messages))

    def _effects(self) -> QuorumEffects:
        effects, self._draft = self._draft, QuorumEffects()
        return effects
