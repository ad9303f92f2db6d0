"""One classic consumer group as a state machine: no clock, no socket, no file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct, error

from headwater.core_log.groups.membership import (
    NO_MEMBER,
    Effects,
    GroupMembers,
    GroupState,
    JoinAnswer,
    Joining,
    Member,
    StoredGroup,
    SyncAnswer,
    Syncing,
    Ticket,
)
from headwater.core_log.groups.rebalance import Rebalance
from headwater.core_log.protocol.error_codes import ErrorCode

CONSUMER_PROTOCOL = "consumer"
NEW_MEMBER_JOIN_MS_MAX = 300_000
"""Longest wait of a member's first join; there is no other sign that a client gave up."""


@dataclass(slots=True)
class Group:
    """A consumer group: members join, the leader assigns, all sync, then they send heartbeats until
    the next change.

    Every event takes the time and returns its effects; the caller calls `on_tick` at
    `next_deadline_ms`.
    """

    group_id: str
    rebalance: Rebalance = field(default_factory=Rebalance)
    size_max: int = 1 << 31

    @classmethod
    def restore(cls, group_id: str, stored: StoredGroup, *, now_ms: int) -> "Group":
        """Restores the group after a restart: each member has one session timeout to send a
        request."""
        rebalance = Rebalance(
            state=GroupState.STABLE if stored.members else GroupState.EMPTY,
            state_since_ms=stored.state_since_ms,
            generation=stored.generation,
            protocol_type=stored.protocol_type or None,
            protocol_name=stored.protocol_name,
        )
        for stored_member in stored.members:
            member = Member.restore(stored_member, stored.protocol_name)
            rebalance.roster.add(member)
            member.hear(now_ms)
        if stored.leader is not None and stored.leader in rebalance.roster:
            rebalance.roster.leader = stored.leader
        return cls(group_id, rebalance)

    @property
    def state(self) -> GroupState:
        return self.rebalance.state

    @property
    def generation(self) -> int:
        return self.rebalance.generation

    @property
    def roster(self) -> GroupMembers:
        return self.rebalance.roster

    def join(self, joining: Joining, ticket: Ticket, *, now_ms: int, new_member_id: str) -> Effects:
        """Joins a member; answered when the next generation is formed. A new member gets
        `new_member_id` if it needs one."""
        effects, member_id = Effects(), joining.member_id
        if not self._is_welcome(member_id):
            self._turn_away(effects, member_id, now_ms)
            error, member_id = ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER
        elif self.state is GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif not self._agrees_with(joining):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif member_id == NO_MEMBER:
            return self._join_new(effects, joining, ticket, now_ms, new_member_id)
        elif member_id in self.rebalance.expected and joining.instance_id is None:
            return self._add(effects, joining, ticket, now_ms, member_id)
        else:
            error = self.roster.check(member_id, joining.instance_id)
            if error is ErrorCode.NONE:
                return self._join_again(effects, joining, ticket, now_ms)
        effects.answers.append((ticket, JoinAnswer(member_id, error)))
        return effects

    def sync(self, syncing: Syncing, ticket: Ticket, *, now_ms: int) -> Effects:
        """Answered once the leader's assignment is durable."""
        effects, rebalance = Effects(), self.rebalance
        error = self._check_sync(syncing)
        if error is not ErrorCode.NONE:
            effects.answers.append((ticket, SyncAnswer(error)))
            return effects
        member = self.roster[syncing.member_id]
        rebalance.unsynced.discard(member.member_id)
        if not rebalance.unsynced:
            rebalance.sync_ends_ms = None
        if self.state is GroupState.STABLE:
            effects.answers.append((ticket, rebalance.share_of(member)))
            return effects
        rebalance.park_sync(effects, member, ticket)
        if member.member_id == self.roster.leader:
            effects.store = rebalance.to_stored(dict(syncing.assignments), since_ms=now_ms)
        return effects

    def heartbeat(
        self, member_id: str, generation: int, *, instance_id: str | None = None, now_ms: int
    ) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.roster.check(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.roster[member_id].hear(now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, leaving: Sequence[tuple[str, str | None]], *, now_ms: int
    ) -> tuple[list[ErrorCode], Effects]:
        """Removes members by member id, or by instance id alone, as an operator does; returns one
        error for each."""
        effects = Effects()
        if self.state is GroupState.DEAD:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(leaving), effects
        errors = [self._leave(effects, *identity) for identity in leaving]
        if ErrorCode.NONE in errors and self.state is not GroupState.EMPTY:
            self.rebalance.begin_or_go_on(effects, now_ms)
        return errors, effects

    def on_stored(self, stored: StoredGroup, *, now_ms: int) -> Effects:
        """The assignment of this generation is durable: every member may get its part."""
        effects = Effects()
        if self._awaits(stored):
            self.rebalance.assign(effects, stored, now_ms)
        return effects

    def on_store_failed(self, stored: StoredGroup, error: ErrorCode, *, now_ms: int) -> Effects:
        """No member has an assignment yet, so the group can begin again."""
        effects = Effects()
        if self._awaits(stored):
            self.rebalance.answer_syncs(effects, error, now_ms)
            self.rebalance.begin(effects, now_ms)
        return effects

    def on_tick(self, now_ms: int) -> Effects:
        effects, rebalance = Effects(), self.rebalance
        for member_id in [m for m, until_ms in rebalance.expected.items() if until_ms <= now_ms]:
            del rebalance.expected[member_id]
            rebalance.complete_if_joined(effects, now_ms)
        for member in list(self.roster):
            if member.session_ends_ms is not None and member.session_ends_ms <= now_ms:
                self._end_session(effects, member, now_ms)
        if rebalance.sync_ends_ms is not None and rebalance.sync_ends_ms <= now_ms:
            rebalance.expire_sync(effects, now_ms)
        if rebalance.join_ends_ms is not None and rebalance.join_ends_ms <= now_ms:
            rebalance.expire_join(effects, now_ms)
        return effects

    def on_unload(self) -> Effects:
        """Called when another broker becomes the coordinator of this group."""
        effects, rebalance = Effects(), self.rebalance
        for member in self.roster:
            rebalance.answer_join(effects, member, ErrorCode.NOT_COORDINATOR)
            rebalance.answer_sync(effects, member, SyncAnswer(ErrorCode.NOT_COORDINATOR))
        self.rebalance = Rebalance(state=GroupState.DEAD)
        return effects

    def next_deadline_ms(self) -> int | None:
        return self.rebalance.next_deadline_ms()

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool
    ) -> ErrorCode:
        """Checks whether these offsets may be committed: by a current member, or to a group without
        members."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            error = self.roster.check(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def on_offset_commit(self, member_id: str, *, now_ms: int) -> None:
        """Notes that a member that commits is alive."""
        if member_id in self.roster:
            self.roster[member_id].hear(now_ms)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may be reading `topic`; True if that is not known."""
        rebalance = self.rebalance
        if rebalance.protocol_type != CONSUMER_PROTOCOL or not len(self.roster):
            return False
        if rebalance.protocol_name is None:
            return True
        metadata = (member.metadata_of(rebalance.protocol_name) for member in self.roster)
        known = [subscribed_topics(each) for each in metadata]
        return any(topics is None or topic in topics for topics in known)

    def _is_welcome(self, member_id: str) -> bool:
        """Whether the member may join: a full group refuses the last ones, including its own
        members if it must shrink."""
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            joined = {m.member_id for m in self.roster if m.join_ticket is not None}
            return member_id in joined or len(joined) < self.size_max
        return member_id in self.roster or len(self.roster) < self.size_max

    def _turn_away(self, effects: Effects, member_id: str, now_ms: int) -> None:
        self.rebalance.expected.pop(member_id, None)
        if member_id in self.roster:
            self.rebalance.part_from(effects, self.roster[member_id])
        self.rebalance.complete_if_joined(effects, now_ms)

    def _agrees_with(self, joining: Joining) -> bool:
        if not len(self.roster):
            return bool(joining.protocol_type and joining.protocols)
        is_same_type = joining.protocol_type == self.rebalance.protocol_type
        return is_same_type and self.roster.can_agree_with(joining)

    def _join_new(
        self, effects: Effects, joining: Joining, ticket: Ticket, now_ms: int, new_member_id: str
    ) -> Effects:
        if joining.instance_id is not None and joining.instance_id in self.roster.static_ids:
            return self._return_static(effects, joining, ticket, now_ms, new_member_id)
        if joining.instance_id is None and joining.takes_member_id_first:
            # A client that never comes back costs one id instead of a phantom member (KIP-394).
            self.rebalance.expected[new_member_id] = now_ms + joining.session_timeout_ms
            answer = JoinAnswer(new_member_id, ErrorCode.MEMBER_ID_REQUIRED)
            effects.answers.append((ticket, answer))
            return effects
        return self._add(effects, joining, ticket, now_ms, new_member_id)

    def _add(
        self, effects: Effects, joining: Joining, ticket: Ticket, now_ms: int, member_id: str
    ) -> Effects:
        self.rebalance.expected.pop(member_id, None)
        member = Member.of(joining, member_id)
        member.join_ticket, member.is_new = ticket, True
        member.session_ends_ms = now_ms + NEW_MEMBER_JOIN_MS_MAX
        if not len(self.roster):
            self.rebalance.protocol_type = joining.protocol_type
        self.roster.add(member)
        self.rebalance.has_newcomer = True
        self.rebalance.begin_or_go_on(effects, now_ms)
        return effects

    def _join_again(
        self, effects: Effects, joining: Joining, ticket: Ticket, now_ms: int
    ) -> Effects:
        member = self.roster[joining.member_id]
        is_same = member.protocols == joining.protocols
        is_leader = self.roster.leader == member.member_id
        if is_same and self.state is GroupState.COMPLETING_REBALANCE:
            # The answer to its join was lost: send it again.
            effects.answers.append((ticket, self.rebalance.generation_for(member)))
        elif is_same and self.state is GroupState.STABLE and not is_leader:
            effects.answers.append((ticket, self.rebalance.generation_for(member)))
        else:
            # A leader that joins again wants a new assignment even if its metadata is the same.
            self.rebalance.park_join(effects, member, joining, ticket)
            self.rebalance.begin_or_go_on(effects, now_ms)
        return effects

    def _return_static(
        self, effects: Effects, joining: Joining, ticket: Ticket, now_ms: int, new_member_id: str
    ) -> Effects:
        """A known instance returns with a new member id: it keeps its part if nothing changed."""
        assert joining.instance_id is not None, "only instances return"
        rebalance, old_leader = self.rebalance, self.roster.leader
        member = self.roster[self.roster.static_ids[joining.instance_id]]
        rebalance.answer_join(effects, member, ErrorCode.FENCED_INSTANCE_ID)
        rebalance.answer_sync(effects, member, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
        if member.member_id in rebalance.unsynced:
            rebalance.unsynced.remove(member.member_id)
            rebalance.unsynced.add(new_member_id)
        self.roster.rename(member, new_member_id)
        member.is_new = False
        member.hear(now_ms)
        rebalance.park_join(effects, member, joining, ticket)
        if self.state is not GroupState.STABLE:
            rebalance.begin_or_go_on(effects, now_ms)
        elif self.roster.select_protocol() != rebalance.protocol_name:
            rebalance.begin(effects, now_ms)
        else:
            member.join_ticket = None
            effects.store = rebalance.to_stored(since_ms=rebalance.state_since_ms)
            effects.answers.append((ticket, self._find_unchanged(member, joining, old_leader)))
        return effects

    def _find_unchanged(self, member: Member, joining: Joining, old_leader: str) -> JoinAnswer:
        """Returns the answer. Older clients get the old leader's id, because a client that finds
        itself the leader would assign again."""
        rebalance, is_leader = self.rebalance, self.roster.leader == member.member_id
        return JoinAnswer(
            member.member_id,
            generation=rebalance.generation,
            protocol_type=rebalance.protocol_type,
            protocol_name=rebalance.protocol_name,
            leader=self.roster.leader if joining.may_skip_assignment else old_leader,
            members=rebalance.members_for(member) if joining.may_skip_assignment else (),
            skip_assignment=joining.may_skip_assignment and is_leader,
        )

    def _leave(self, effects: Effects, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id == NO_MEMBER and instance_id is not None:
            member_id = self.roster.static_ids.get(instance_id, NO_MEMBER)
        elif self.rebalance.expected.pop(member_id, None) is not None:
            return ErrorCode.NONE
        error = self.roster.check(member_id, instance_id)
        if error is ErrorCode.NONE:
            self.rebalance.part_from(effects, self.roster[member_id])
        return error

    def _check_sync(self, syncing: Syncing) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.roster.check(syncing.member_id, syncing.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if syncing.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if syncing.protocol_type not in (None, self.rebalance.protocol_type) or (
            syncing.protocol_name not in (None, self.rebalance.protocol_name)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _end_session(self, effects: Effects, member: Member, now_ms: int) -> None:
        member.session_ends_ms = None
        if not member.is_heard and member.member_id in self.roster:
            self.rebalance.part_from(effects, member)
            self.rebalance.begin_or_go_on(effects, now_ms)

    def _awaits(self, stored: StoredGroup) -> bool:
        is_current = stored.generation == self.generation
        return self.state is GroupState.COMPLETING_REBALANCE and is_current


_SHORT, _INT = Struct(">h"), Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Returns the topics of a consumer protocol's subscription; None if the bytes are not one."""
    try:
        count = _INT.unpack_from(metadata, _SHORT.size)[0]
        position, topics = _SHORT.size + _INT.size, set()
        for _ in range(count):
            length = _SHORT.unpack_from(metadata, position)[0]
            start = position + _SHORT.size
            position = start + length
            if length < 0 or position > len(metadata):
                return None
            topics.add(metadata[start:position].decode())
    except (error, UnicodeDecodeError):
        return None
    return frozenset(topics)
