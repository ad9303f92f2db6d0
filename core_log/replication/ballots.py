"""Votes of the metadata quorum: what is asked, what is answered, and how answers are counted."""

from dataclasses import dataclass, field

from headwater.core_log.replication.voters import ReplicaKey, Voters, is_majority

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Ballot:
    """A request for a vote. A pre-vote asks whether a vote would be given (KIP-996): it names the
    epoch of now, and changes nothing."""

    candidate: ReplicaKey
    voter: ReplicaKey
    epoch: int
    last_epoch: int
    """The epoch of the candidate's newest record."""
    end_offset: int
    is_pre_vote: bool


@dataclass(frozen=True, slots=True)
class BallotAnswer:
    """A voter's answer, with the epoch and the leader that it knows."""

    is_granted: bool
    epoch: int
    leader: int = NOBODY


@dataclass(slots=True)
class Count:
    """The answers to one candidacy, its own included."""

    voters: Voters
    granted: set[ReplicaKey] = field(default_factory=set)
    refused: set[ReplicaKey] = field(default_factory=set)

    def note(self, voter: ReplicaKey, *, is_granted: bool) -> None:
        (self.granted if is_granted else self.refused).add(voter)

    @property
    def has_won(self) -> bool:
        return is_majority(self.granted, self.voters)

    @property
    def unanswered(self) -> list[ReplicaKey]:
        return sorted(self.voters - self.granted - self.refused)
