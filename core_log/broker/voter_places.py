"""The voters of the metadata quorum as their records and messages have them: where they listen, and
whom they replace."""

from collections.abc import Callable, Collection, Mapping, Sequence

from headwater.core_log.broker.peers import Address
from headwater.core_log.replication.voters import ReplicaKey, Voter

NOWHERE: Address = ("", 0)


class VoterPlaces:
    """Addresses of voters by their records, and of nodes as they were last heard of."""

    def __init__(self, replica: ReplicaKey) -> None:
        self._replica = replica
        self.own: Voter | None = None
        """This node, as its own record should be; None before it listens."""
        self._address_of: Callable[[int], Address | None] = lambda _: None
        self._sets: list[tuple[int, dict[ReplicaKey, Voter]]] = []
        """The records of voters, by offset."""
        self._told: dict[ReplicaKey, Voter] = {}
        """Voters that have told of themselves, until a record has it."""
        self._replacing: dict[ReplicaKey, int] = {}
        """The voter that the next record adds, and the node whose place it takes."""
        self._heard: dict[int, Address] = {}

    def start(self, address: Address, address_of: Callable[[int], Address | None]) -> None:
        """`address_of` says where a broker has registered."""
        self.own, self._address_of = Voter(self._replica, *address), address_of

    def add(self, offset: int, voters: Sequence[Voter]) -> None:
        """Called for every record of voters, in the order of the log."""
        self._sets.append((offset, {each.key: each for each in voters}))
        self._told.clear()
        self._replacing.clear()
        self._hear(voters)

    def truncate_to(self, end_offset: int) -> None:
        self._sets = [each for each in self._sets if each[0] < end_offset]

    def start_over(self, end_offset: int, voters: Sequence[Voter]) -> None:
        """Called when a snapshot that ends there has replaced the log."""
        self._sets = [(end_offset - 1, {each.key: each for each in voters})]
        self._hear(voters)

    def _hear(self, voters: Sequence[Voter]) -> None:
        for each in voters:
            self._heard[each.key.node_id] = (each.host, each.port)

    @property
    def outdated(self) -> Voter | None:
        """Returns this voter as its record should be, if that says something else."""
        recorded = self.record_of(self._replica)
        if recorded is None or recorded._replace(replaces=None) == self.own:
            return None
        return self.own

    def record_of(self, key: ReplicaKey) -> Voter | None:
        """Returns a voter as the newest record has it."""
        return self._sets[-1][1].get(key) if self._sets else None

    def record_at(self, key: ReplicaKey, end_offset: int) -> Voter:
        """Returns a voter as the log below an offset has it."""
        sets = [each for offset, each in self._sets if offset < end_offset]
        found = sets[-1].get(key) if sets else None
        return found or self.voter(key)

    def tell(self, voter: Voter) -> None:
        """Called when a voter says what its next record should be."""
        self._told[voter.key] = voter

    def replace(self, gone: ReplicaKey, new: ReplicaKey) -> None:
        """Called when the next record adds a voter in the place of another one."""
        self._replacing = {new: gone.node_id}

    @property
    def replaced(self) -> Mapping[int, ReplicaKey]:
        """Returns the nodes that voters replace by the newest record, with these voters."""
        return _replaced_in(self._sets[-1:])

    @property
    def was_replacing(self) -> bool:
        """Whether somebody had still to leave by the record before it."""
        return bool(_replaced_in(self._sets[-2:-1]))

    def next_record(self, keys: Collection[ReplicaKey]) -> list[Voter]:
        """Returns voters as their next record should be. A voter replaces a node until that one
        does not vote any more."""
        voting = {each.node_id for each in keys}
        found = []
        for each in sorted(keys):
            recorded = self.record_of(each)
            replaces = None if recorded is None else recorded.replaces
            replaces = self._replacing.get(each, replaces)
            stays = replaces if replaces in voting else None
            found.append(self.voter(each)._replace(replaces=stays))
        return found

    def voter(self, key: ReplicaKey) -> Voter:
        """Returns a voter with its address in its next record."""
        if key == self._replica and self.own is not None:
            return self.own
        found = self._told.get(key) or self.record_of(key)
        return found or Voter(key, *(self._address_of(key.node_id) or NOWHERE))

    def address_of(self, node_id: int) -> Address | None:
        """Returns the address of a voter, or of a leader, as it was last heard of."""
        return self._heard.get(node_id)

    def note(self, node_id: int, address: Address) -> None:
        if node_id != self._replica.node_id:
            self._heard[node_id] = address

    @property
    def others(self) -> Sequence[Address]:
        return [at for node_id, at in self._heard.items() if node_id != self._replica.node_id]


def _replaced_in(sets: Sequence[tuple[int, Mapping[ReplicaKey, Voter]]]) -> dict[int, ReplicaKey]:
    voters = [each for _, found in sets for each in found.values()]
    return {each.replaces: each.key for each in voters if each.replaces is not None}
