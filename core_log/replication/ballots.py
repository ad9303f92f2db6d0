"""Votes of the metadata quorum: asked, answered, counted, and kept in Kafka's file `quorum-
state`."""

from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import orjson

from headwater.core_log.foundation.errors import DecodeError, HeadwaterError
from headwater.core_log.replication.voters import ReplicaKey, Voters, is_majority
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.properties import decode_uuid, encode_uuid

NOBODY = -1


class VoteLost(HeadwaterError):
    """This directory does not know any more which votes it has given."""


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


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The state that a node must never forget, kept in `quorum-state`."""

    epoch: int = 0
    leader: int = NOBODY
    voted: ReplicaKey | None = None


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
        """A majority is enough among voters whose logs are as they promised. With the others all
        must agree: then nobody has more than the candidate."""
        return is_majority(self.granted - self.doubtful, self.voters) or self._is_unanimous

    @property
    def _is_unanimous(self) -> bool:
        return bool(self.voters) and self.voters <= self.granted

    @property
    def unanswered(self) -> list[ReplicaKey]:
        return sorted(self.voters - self.granted - self.refused)


FILE_NAME = "quorum-state"
DATA_VERSION = 1
NO_VOTE = ReplicaKey(NOBODY, UUID(int=0))


def read_quorum_state(files: Files, directory: Path) -> ElectionState | None:
    """Returns the stored state; None if there is no file yet. Raises `DecodeError` if the file is
    damaged."""
    path = directory / FILE_NAME
    if not files.exists(path):
        return None
    try:
        values = orjson.loads(files.read(path))
        voted = ReplicaKey(int(values["votedId"]), decode_uuid(values["votedDirectoryId"]))
        vote = None if voted == NO_VOTE else voted
        state = ElectionState(int(values["leaderEpoch"]), int(values["leaderId"]), vote)
        version = values["data_version"]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        raise DecodeError("quorum-state is damaged", file=str(path)) from None
    if version != DATA_VERSION:
        raise DecodeError("quorum-state has an unknown version", file=str(path), version=version)
    return state


def write_quorum_state(files: Files, directory: Path, state: ElectionState) -> None:
    """Writes the state; it is on disk on return."""
    voted = state.voted or NO_VOTE
    values = {
        "leaderId": state.leader,
        "leaderEpoch": state.epoch,
        "votedId": voted.node_id,
        "votedDirectoryId": encode_uuid(voted.directory_id),
        "data_version": DATA_VERSION,
    }
    files.replace(directory / FILE_NAME, orjson.dumps(values))
