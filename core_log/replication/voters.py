"""The voters of the metadata quorum: who they are, from which offset of the log on."""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

BEFORE_THE_LOG = -1


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
