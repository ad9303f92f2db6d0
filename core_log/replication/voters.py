"""The voters of the metadata quorum: who they are, from which offset of the log on, and their
votes, kept in Kafka's file `quorum-state`."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import orjson

from headwater.core_log.foundation.errors import DecodeError, HeadwaterError
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.properties import decode_uuid, encode_uuid

BEFORE_THE_LOG = -1
VOTERS = 3
"""As many vote by themselves once there are as many brokers."""
LOOK_MS_MAX = 1_000
NOBODY = -1
STATE_FILE, STATE_VERSION = "quorum-state", 1


class ReplicaKey(NamedTuple):
    """A node with its directory: after its disk is wiped it is another voter, so that it cannot
    vote twice in one epoch (KIP-853)."""

    node_id: int
    directory_id: UUID


Voters = frozenset[ReplicaKey]


class QuorumVersions(NamedTuple):
    """The versions of the quorum's protocol that a voter supports, Kafka's `kraft.version`."""

    lowest: int = 0
    highest: int = 1
    """In this one voters are changed by records."""


QUORUM_VERSIONS = QuorumVersions()


class Voter(NamedTuple):
    """A voter with its address, as its record has it."""

    key: ReplicaKey
    host: str
    port: int
    versions: QuorumVersions = QUORUM_VERSIONS
    replaces: int | None = None
    """The node that loses its vote to this one once the record with both is committed."""


def is_majority(some: Collection[ReplicaKey], voters: Voters) -> bool:
    return 2 * len(voters.intersection(some)) > len(voters)


class VoterHistory:
    """The sets of voters in the log by the offset of their record. The newest is in force, whether
    or not it is committed."""

    def __init__(self, first: Voters = frozenset()) -> None:
        """`first` is in force before any record."""
        self._sets: list[tuple[int, Voters]] = [(BEFORE_THE_LOG, first)]

    @property
    def latest(self) -> Voters:
        return self._sets[-1][1]

    @property
    def latest_offset(self) -> int:
        """Returns the offset of the record in force; -1 if there is none."""
        return self._sets[-1][0]

    @property
    def before_latest(self) -> Voters:
        """Returns the set that the latest one has replaced."""
        return self._sets[-2][1] if len(self._sets) > 1 else self.latest

    def at(self, end_offset: int) -> Voters:
        """Returns the set of the log below an offset, for its snapshot."""
        return next(voters for offset, voters in reversed(self._sets) if offset < end_offset)

    def add(self, offset: int, voters: Voters) -> None:
        assert offset > self.latest_offset, "sets of voters come in the order of the log"
        self._sets.append((offset, voters))

    def truncate_to(self, end_offset: int) -> None:
        self._sets = [each for each in self._sets if each[0] < end_offset]

    def start_over(self, end_offset: int, voters: Voters) -> None:
        """Called when a snapshot that ends there has replaced the log."""
        self._sets = [(end_offset - 1, voters)]


class Absences:
    """How long each voter has been away, as the leader of the quorum has watched. Time in which it
    stood still itself does not count, nor does any before its election."""

    def __init__(self) -> None:
        self._away_ms: dict[ReplicaKey, int] = {}
        self._looked_ms = 0

    def look(self, heard_ms: Mapping[ReplicaKey, int], now_ms: int) -> None:
        """Called several times a second, with the time of the last fetch of each other voter, or of
        the election."""
        passed_ms = min(now_ms - self._looked_ms, LOOK_MS_MAX)
        self._away_ms = {
            each: 0 if at_ms >= self._looked_ms else self._away_ms.get(each, 0) + passed_ms
            for each, at_ms in heard_ms.items()
        }
        self._looked_ms = now_ms

    def list_away(self, *, for_ms: int) -> list[ReplicaKey]:
        """Returns the voters that have been away for so long, the longest first."""
        away_ms = self._away_ms
        found = [each for each in away_ms if away_ms[each] >= for_ms]
        return sorted(found, key=lambda each: (-away_ms[each], each))


class NextVoters(NamedTuple):
    """The next set of voters, and who takes whose place in it."""

    voters: Voters
    new: ReplicaKey | None = None
    gone: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class Electorate:
    """The voters as the newest record has them, and those who could vote."""

    voters: Voters
    before: Voters
    """The set that `voters` has replaced."""
    replaced: Mapping[int, ReplicaKey]
    """Nodes whose place another voter takes, by the newest record, and that voter."""
    was_replacing: bool
    """Whether that set had such a node."""
    up_to_date: Set[ReplicaKey]
    """Replicas that have all that is committed."""
    observers: Sequence[ReplicaKey]
    """Those of them that do not vote and whose brokers are alive."""
    racks: Mapping[int, str | None]
    """The places of the nodes."""
    away: Sequence[ReplicaKey] = ()
    """Voters that have been away for too long, the longest first."""

    def choose(self) -> NextVoters | None:
        """Returns the next change: three voters once there are three brokers, and a vote for whose
        disk was replaced, or in the place of who is away. An addition comes before its removal."""
        voting = {each.node_id: each for each in self.voters}
        for node_id in sorted(self.replaced.keys() & voting.keys()):
            return NextVoters(self.voters - {self._leaving(voting[node_id])})
        for each in self.observers:
            if each.node_id in voting:  # its former directory is gone
                is_last = len(self.voters) == 1
                return None if is_last else NextVoters(self.voters - {voting[each.node_id]})
        if len(self.voters) == 1:
            enough = len(self.observers) >= VOTERS - 1
            return NextVoters(self.voters | self._pick(VOTERS - 1, self.voters)) if enough else None
        if len(self.voters) < VOTERS:
            return NextVoters(self.voters | self._pick(1, self.voters)) if self.observers else None
        wiped = self._without_disk()
        return NextVoters(self.voters | {wiped[0]}) if wiped else self._replacement()

    def _leaving(self, gone: ReplicaKey) -> ReplicaKey:
        """The replaced voter leaves, unless it has come back and the other one has gone."""
        new = self.replaced[gone.node_id]
        is_back = gone in self.up_to_date and new not in self.up_to_date
        return new if is_back else gone

    def _without_disk(self) -> list[ReplicaKey]:
        """Returns the observers whose lost disk has just cost a vote."""
        if self.was_replacing:  # whoever has left was replaced
            return []
        left = {each.node_id for each in self.before - self.voters}
        return [each for each in self.observers if each.node_id in left and each not in self.before]

    def _replacement(self) -> NextVoters | None:
        if not self.away or not self.observers:
            return None
        gone = self.away[0]
        [new] = self._pick(1, self.voters - {gone})
        return NextVoters(self.voters | {new}, new, gone)

    def _pick(self, count: int, beside: Voters) -> Voters:
        """Returns so many observers, in the racks that have the fewest votes."""
        voting = beside
        for _ in range(count):
            racks = [self.racks.get(each.node_id) for each in voting]
            left = [each for each in self.observers if each not in voting]
            voting |= {min(left, key=lambda each: racks.count(self.racks.get(each.node_id)))}
        return voting - beside


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


NO_VOTE = ReplicaKey(NOBODY, UUID(int=0))


def read_quorum_state(files: Files, directory: Path) -> ElectionState | None:
    """Returns the stored state; None if there is no file yet. Raises `DecodeError` if the file is
    damaged."""
    path = directory / STATE_FILE
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
    if version != STATE_VERSION:
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
        "data_version": STATE_VERSION,
    }
    files.replace(directory / STATE_FILE, orjson.dumps(values))
