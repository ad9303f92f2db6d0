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
    is_doubtful: bool = False
    """The voter's log may lack what it had on its disk: whatever is granted by it says little."""


@dataclass(slots=True)
class Count:
    """The answers to one candidacy, its own included."""

    voters: Voters
    granted: set[ReplicaKey] = field(default_factory=set)
    refused: set[ReplicaKey] = field(default_factory=set)
    doubtful: set[ReplicaKey] = field(default_factory=set)

    def note(self, voter: ReplicaKey, answer: BallotAnswer) -> None:
        (self.granted if answer.is_granted else self.refused).add(voter)
        if answer.is_doubtful:
            self.doubtful.add(voter)

    @property
    def has_won(self) -> bool:
        """Of voters whose logs are as they promised a majority is enough. With the others all must
        agree: then nobody has more than the candidate."""
        return is_majority(self.granted - self.doubtful, self.voters) or self._is_unanimous

    @property
    def _is_unanimous(self) -> bool:
        return bool(self.voters) and self.voters <= self.granted

    @property
    def unanswered(self) -> list[ReplicaKey]:
        return sorted(self.voters - self.granted - self.refused)
