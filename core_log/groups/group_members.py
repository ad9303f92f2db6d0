"""The members of a group: its leader, and the common protocol."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.core_log.groups.membership import (
    NO_MEMBER,
    JoinedMember,
    Joining,
    Member,
    StoredMember,
)
from headwater.core_log.protocol.error_codes import ErrorCode


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
