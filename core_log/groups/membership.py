"""The members of a consumer group: their requests, the answers, and the stored state of each."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headwater.core_log.protocol.error_codes import ErrorCode

NO_MEMBER = ""
"""The member id of a new member, and the leader of a group without members."""

Ticket = object
"""A request that waits for its answer; a group only returns it."""


class GroupState(Enum):
    """The state of a group, with the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class JoinProtocol(NamedTuple):
    """An assignment protocol of a member, with the member's metadata for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joining:
    """A request to join, or to join again."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    takes_member_id_first: bool = True
    """Whether the client joins again with a member id from the broker (KIP-394, version 4)."""
    may_skip_assignment: bool = True
    """Whether a returning leader can keep the assignment (KIP-814, version 9)."""


class JoinedMember(NamedTuple):
    """A member's entry in the answer to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Syncing:
    """A member's request for its assignment; the leader's request contains all assignments."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class StoredMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The stored state of a group, which survives a restart."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[StoredMember, ...]


@dataclass(slots=True)
class Effects:
    """Effects of an event: the caller makes `store` durable first, then gives the answers.

    Then it calls `on_stored` or `on_store_failed`.
    """

    answers: list[tuple[Ticket, JoinAnswer | SyncAnswer]] = field(default_factory=list)
    store: StoredGroup | None = None


@dataclass(slots=True)
class Member:
    """One consumer of a group, with its waiting requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocols: tuple[JoinProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes = b""
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    session_ends_ms: int | None = None
    is_new: bool = False
    """It has not received a generation yet: a waiting join is no proof that it is alive."""

    @classmethod
    def of(cls, joining: Joining, member_id: str) -> "Member":
        member = cls(
            member_id=member_id,
            instance_id=joining.instance_id,
            client_id=joining.client_id,
            client_host=joining.client_host,
            protocols=(),
            session_timeout_ms=0,
            rebalance_timeout_ms=0,
        )
        member.update(joining)
        return member

    def update(self, joining: Joining) -> None:
        self.protocols = joining.protocols
        self.session_timeout_ms = joining.session_timeout_ms
        self.rebalance_timeout_ms = joining.rebalance_timeout_ms

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_heard(self) -> bool:
        """Whether a known member has a waiting request here, which proves that it is alive without
        heartbeats."""
        parked = self.join_ticket is not None or self.sync_ticket is not None
        return parked and not self.is_new

    def hear(self, now_ms: int) -> None:
        self.session_ends_ms = now_ms + self.session_timeout_ms

    def protocol_names(self) -> set[str]:
        return {protocol.name for protocol in self.protocols}

    def metadata_of(self, protocol_name: str | None) -> bytes:
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")

    def to_stored(self, protocol_name: str | None, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            metadata=self.metadata_of(protocol_name),
            assignment=assignment,
        )

    @classmethod
    def restore(cls, stored: StoredMember, protocol_name: str | None) -> "Member":
        protocols = () if protocol_name is None else (JoinProtocol(protocol_name, stored.metadata),)
        return cls(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            protocols=protocols,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            assignment=stored.assignment,
        )


@dataclass(slots=True)
class GroupMembers:
    """Members in order of joining, which also decides the next leader."""

    members: dict[str, Member] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    """Member id by instance id, for the members that have one (KIP-345)."""
    leader: str = NO_MEMBER

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def __getitem__(self, member_id: str) -> Member:
        return self.members[member_id]

    @property
    def is_joined(self) -> bool:
        """Whether a join of every member waits here."""
        return all(member.join_ticket is not None for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Returns the longest rebalance timeout of the members; never zero."""
        return max((member.rebalance_timeout_ms for member in self), default=0) or 1

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members, "a member joins a roster once"
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids, "an instance has one member id"
            self.static_ids[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        if not self.leader:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), NO_MEMBER)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Gives a returning instance its new member id."""
        assert member.instance_id is not None, "only instances come back under another member id"
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self.members[member_id] = member
        self.static_ids[member.instance_id] = member_id

    def elect_joined_leader(self) -> bool:
        """Makes the first joined member the leader unless the present one has joined; returns
        whether there is one."""
        if self.leader and self.members[self.leader].join_ticket is None:
            joined = (m.member_id for m in self if m.join_ticket is not None)
            self.leader = next(joined, self.leader)
        return bool(self.leader) and self.members[self.leader].join_ticket is not None

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Checks the member's identity; a newer member of the same instance fences the older."""
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def candidates(self) -> list[str]:
        """Returns the protocols that every member supports, in the leader's order of preference."""
        if not self.members:
            return []
        known = set.intersection(*(member.protocol_names() for member in self))
        return [p.name for p in self.members[self.leader].protocols if p.name in known]

    def can_agree_with(self, joining: Joining) -> bool:
        offered = {protocol.name for protocol in joining.protocols}
        return not offered.isdisjoint(self.candidates())

    def select_protocol(self) -> str:
        """Returns the protocol: each member votes for its first candidate; the leader's order
        decides a tie."""
        candidates = self.candidates()
        votes = Counter(
            next(p.name for p in member.protocols if p.name in candidates) for member in self
        )
        return max(candidates, key=lambda name: votes[name])

    def list_joined(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata_of(protocol_name)) for m in self
        )

    def to_stored(
        self, protocol_name: str | None, assignments: dict[str, bytes]
    ) -> tuple[StoredMember, ...]:
        return tuple(m.to_stored(protocol_name, assignments.get(m.member_id, b"")) for m in self)
