"""The change of a consumer group from one generation to the next."""

from dataclasses import dataclass, field

from headwater.core_log.groups.membership import (
    NO_MEMBER,
    Effects,
    GroupMembers,
    GroupState,
    JoinAnswer,
    JoinedMember,
    Joining,
    Member,
    StoredGroup,
    SyncAnswer,
    Ticket,
)
from headwater.core_log.protocol.error_codes import ErrorCode


@dataclass(slots=True)
class Rebalance:
    """The state of a group: empty, then in turn preparing (all join), completing (the leader
    assigns), stable."""

    state: GroupState = GroupState.EMPTY
    state_since_ms: int = 0
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    initial_delay_ms: int = 0
    roster: GroupMembers = field(default_factory=GroupMembers)
    expected: dict[str, int] = field(default_factory=dict)
    """Member ids that were given out and not used yet (KIP-394), with their expiry."""
    unsynced: set[str] = field(default_factory=set)
    """Members of this generation that have not requested their assignment yet."""
    join_ends_ms: int | None = None
    sync_ends_ms: int | None = None
    delay_left_ms: int | None = None
    """For a new group: the remaining time by which new members may delay its first rebalance."""
    has_newcomer: bool = False

    def next_deadline_ms(self) -> int | None:
        deadlines = [*self.expected.values(), self.join_ends_ms, self.sync_ends_ms]
        deadlines += [member.session_ends_ms for member in self.roster]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def begin_or_go_on(self, effects: Effects, now_ms: int) -> None:
        """Begins or continues a rebalance after a member joined, left or changed."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_joined(effects, now_ms)
        else:
            self.begin(effects, now_ms)

    def begin(self, effects: Effects, now_ms: int) -> None:
        """Begins a rebalance: all members must join again, and learn it from the next heartbeat."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            self.answer_syncs(effects, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self.unsynced.clear()
        self.sync_ends_ms = None
        is_first = self.state is GroupState.EMPTY
        self.enter(GroupState.PREPARING_REBALANCE, now_ms)
        if is_first and self.initial_delay_ms:
            left_ms = self.roster.rebalance_timeout_ms - self.initial_delay_ms
            self.delay_left_ms, self.has_newcomer = max(left_ms, 0), False
            self.join_ends_ms = now_ms + self.initial_delay_ms
        elif is_first:
            self.complete(effects, now_ms)
        else:
            self.join_ends_ms = now_ms + self.roster.rebalance_timeout_ms
            self.complete_if_joined(effects, now_ms)

    def complete_if_joined(self, effects: Effects, now_ms: int) -> None:
        is_gathering = self.delay_left_ms is not None
        if self.state is not GroupState.PREPARING_REBALANCE or is_gathering:
            return
        if self.roster.is_joined and not self.expected:
            self.complete(effects, now_ms)

    def complete(self, effects: Effects, now_ms: int) -> None:
        """Continues with the joined members; of the others only static members (KIP-345) stay."""
        self.delay_left_ms = None
        for member in list(self.roster):
            if member.join_ticket is None and not member.is_static:
                self.part_from(effects, member)
        if len(self.roster) and not self.roster.elect_joined_leader():
            # Their sessions will expire, or they will come back.
            self.join_ends_ms = now_ms + self.roster.rebalance_timeout_ms
            return
        self.join_ends_ms = None
        self.generation += 1
        self.unsynced.clear()
        if not len(self.roster):
            self.protocol_name = None
            self.enter(GroupState.EMPTY, now_ms)
            effects.store = self.to_stored(since_ms=now_ms)
            return
        self.protocol_name = self.roster.select_protocol()
        self.enter(GroupState.COMPLETING_REBALANCE, now_ms)
        self.unsynced = set(self.roster.members)
        self.sync_ends_ms = now_ms + self.roster.rebalance_timeout_ms
        for member in self.roster:
            member.hear(now_ms)
            member.is_new = False
            if member.join_ticket is not None:
                effects.answers.append((member.join_ticket, self.generation_for(member)))
                member.join_ticket = None

    def expire_join(self, effects: Effects, now_ms: int) -> None:
        if self.delay_left_ms and self.has_newcomer:
            delay_ms = min(self.initial_delay_ms, self.delay_left_ms)
            self.delay_left_ms -= delay_ms
            self.has_newcomer = False
            self.join_ends_ms = now_ms + delay_ms
        else:
            self.complete(effects, now_ms)

    def expire_sync(self, effects: Effects, now_ms: int) -> None:
        """Removes members that joined and never requested an assignment, so that the others can go
        on."""
        self.sync_ends_ms = None
        for member in [each for each in self.roster if each.member_id in self.unsynced]:
            self.part_from(effects, member)
        self.begin(effects, now_ms)

    def assign(self, effects: Effects, stored: StoredGroup, now_ms: int) -> None:
        for member in stored.members:
            if member.member_id in self.roster:
                self.roster[member.member_id].assignment = member.assignment
        self.enter(GroupState.STABLE, stored.state_since_ms)
        self.answer_syncs(effects, ErrorCode.NONE, now_ms)

    def park_join(self, effects: Effects, member: Member, joining: Joining, ticket: Ticket) -> None:
        """Stores a waiting join; a client that sends another one has given up its first."""
        self.answer_join(effects, member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.update(joining)
        member.join_ticket = ticket

    def park_sync(self, effects: Effects, member: Member, ticket: Ticket) -> None:
        self.answer_sync(effects, member, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket

    def part_from(self, effects: Effects, member: Member) -> None:
        """Removes a member; its waiting requests get an error, so that a client that is still alive
        joins again."""
        self.answer_join(effects, member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)
        self.answer_sync(effects, member, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        self.roster.remove(member.member_id)
        self.unsynced.discard(member.member_id)

    def answer_join(
        self, effects: Effects, member: Member, error: ErrorCode, member_id: str | None = None
    ) -> None:
        if member.join_ticket is not None:
            told_id = member.member_id if member_id is None else member_id
            effects.answers.append((member.join_ticket, JoinAnswer(told_id, error)))
            member.join_ticket = None

    def answer_sync(self, effects: Effects, member: Member, answer: SyncAnswer) -> None:
        if member.sync_ticket is not None:
            effects.answers.append((member.sync_ticket, answer))
            member.sync_ticket = None

    def answer_syncs(self, effects: Effects, error: ErrorCode, now_ms: int) -> None:
        for member in self.roster:
            if error is not ErrorCode.NONE:
                member.assignment = b""
            if member.sync_ticket is not None:
                is_shared = error is ErrorCode.NONE
                share = self.share_of(member) if is_shared else SyncAnswer(error)
                self.answer_sync(effects, member, share)
                member.hear(now_ms)

    def generation_for(self, member: Member) -> JoinAnswer:
        return JoinAnswer(
            member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader,
            members=self.members_for(member),
        )

    def members_for(self, member: Member) -> tuple[JoinedMember, ...]:
        """Returns the members for the answer: only the leader gets them."""
        is_leader = self.roster.leader == member.member_id
        return self.roster.list_joined(self.protocol_name) if is_leader else ()

    def share_of(self, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def enter(self, state: GroupState, now_ms: int) -> None:
        self.state, self.state_since_ms = state, now_ms

    def to_stored(
        self, assignments: dict[str, bytes] | None = None, *, since_ms: int
    ) -> StoredGroup:
        if assignments is None:
            assignments = {member.member_id: member.assignment for member in self.roster}
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.roster.leader or None,
            state_since_ms=since_ms,
            members=self.roster.to_stored(self.protocol_name, assignments),
        )
