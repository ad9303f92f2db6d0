"""Where the voters of the metadata quorum listen, as their records and messages say."""

from collections.abc import Callable, Sequence

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
        self._heard: dict[int, Address] = {}

    def start(self, address: Address, address_of: Callable[[int], Address | None]) -> None:
        """`address_of` says where a broker has registered."""
        self.own, self._address_of = Voter(self._replica, *address), address_of

    def add(self, offset: int, voters: Sequence[Voter]) -> None:
        """Called for every record of voters, in the order of the log."""
        self._sets.append((offset, {each.key: each for each in voters}))
        self._told.clear()
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
        return self.own if recorded is not None and recorded != self.own else None

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

    def voter(self, key: ReplicaKey) -> Voter:
        """Returns a voter as its next record should be."""
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
