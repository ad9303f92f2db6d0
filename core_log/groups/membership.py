"""Requests and answers between a consumer group and its members, and the stored state of each."""

from collections.abc import Mapping
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
