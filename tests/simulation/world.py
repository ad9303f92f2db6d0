"""One history: a broker, its clients, and what goes wrong, all from one seed."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from random import Random
from typing import Any

from headwater.core_log.broker.broker import Broker
from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import Isolation, TopicPartition
from headwater.core_log.replication.decisions import NO_ID
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.voters import VOTERS
from tests.simulation.checker import Observed, problems_of
from tests.simulation.file_checker import Assignment, FileChecker, Look, problems_of_stopped
from tests.simulation.last_look import LOOK_S, drain_relay, read_everything, settle
from tests.simulation.load import (
    AppendingClient,
    Client,
    ReaderClient,
    RelayClient,
    Wiring,
    WriterClient,
    simulated_log,
)
from tests.simulation.machine import PORT, Machine
from tests.simulation.network import Network
from tests.simulation.trace import Trace
from tests.simulation.virtual_time import LoopClock, simulate

SMALL_SEGMENTS = {"segment.bytes": "16384", "index.interval.bytes": "1024"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "4096",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
TOPICS = [
    TopicSettings(name="orders", partitions=3, config=SMALL_SEGMENTS),
    TopicSettings(name="copies", partitions=2, config=SMALL_SEGMENTS),
    TopicSettings(name="newest", partitions=1, config=COMPACTED),
]
ORDERS, COPIES, NEWEST = (
    [TopicPartition(topic.name, index) for index in range(topic.partitions)] for topic in TOPICS
)
COMPACTED_TOPICS = frozenset({"newest", "__consumer_offsets", "__transaction_state"})
BROKER: Mapping[str, Any] = {"internal_partitions": 2, "housekeeping_interval_ms": 500}
FAULT_S = 1.0
"""Time between two faults, on average."""
ALONE_AWAY_S_MAX, AWAY_S_MAX = 0.5, 5.0
"""How long a broker is away; nobody else does the work of one alone."""
FILES_S = 0.5
"""Time between two looks at the files of several brokers."""
SETTLED_S = 10.0
"""Once nothing fails any more, everybody succeeds again within this time."""


@dataclass(frozen=True)
class History:
    """What one seed has led to."""

    seed: int
    problems: list[str]
    digest: str
    """Of the trace, of all bytes on the disks, and of all that clients saw."""
    faults: list[str]
    seen: Observed


class Faults:
    """Everything that may go wrong with a machine and the connections to it. Each fault is over
    when its method returns, but that a broker which is down must be booted."""

    def __init__(
        self,
        machine: Machine,
        network: Network,
        random: Random,
        *,
        away_s_max: float = ALONE_AWAY_S_MAX,
    ) -> None:
        self._machine, self._network, self._random = machine, network, random
        self._away_s_max = away_s_max

    @property
    def name(self) -> str:
        return self._machine.name

    @property
    def is_up(self) -> bool:
        """A machine whose start has failed is down until its next attempt."""
        return self._machine.is_up

    async def kill(self) -> None:
        self._machine.kill()
        await self._boot_again()

    async def cut_power(self) -> None:
        self._machine.cut_power()
        await self._boot_again()

    async def restart(self) -> None:
        await self._machine.stop()
        if not self._machine.is_up:
            self._machine.boot()

    async def _boot_again(self) -> None:
        await asyncio.sleep(self._random.uniform(0, self._away_s_max))
        self._machine.boot()

    async def stall(self) -> None:
        """The process stands still, with its buffers filling up."""
        process = self._machine.process
        assert process is not None, "the machine is up"
        process.pause()
        await asyncio.sleep(self._random.choice([0.1, 1.0, 4.0]))
        process.resume()

    async def reset_connections(self) -> None:
        self._network.reset(self._random)

    async def cut_link(self) -> None:
        """Nothing passes in one direction or both; the connection stays."""
        mine = self._machine.name
        links = [each for each in self._network.links if mine in each]
        if not links:  # nobody has come back since the last fault
            return
        one, other = self._random.choice(links)
        there, back = (one, other), (other, one)
        await self._cut_for_a_while(self._random.choice([{there}, {back}, {there, back}]))

    async def isolate(self) -> None:
        """The machine is cut off from its peers and clients, or hears or reaches nobody."""
        mine = self._machine.name
        names = {name for link in self._network.links for name in link if name != mine}
        there, back = {(mine, each) for each in names}, {(each, mine) for each in names}
        await self._cut_for_a_while(self._random.choice([there, back, there | back]))

    async def _cut_for_a_while(self, ways: Set[tuple[str, str]]) -> None:
        self._network.cut_off(ways)
        await asyncio.sleep(self._random.choice([0.1, 1.0, 4.0]))
        self._network.restore(ways)

    async def fail_syncs(self) -> None:
        self._machine.fail_syncs()
        await asyncio.sleep(self._random.uniform(0, 0.5))
        self._machine.heal_disk()

    async def hang_disk(self) -> None:
        self._machine.hang_disk()
        await asyncio.sleep(self._random.choice([0.5, 4.0, 8.0]))
        self._machine.heal_disk()

    async def fail_syncs_and_kill(self) -> None:
        """The next process finds files whose last sync has failed."""
        self._machine.fail_syncs()
        await asyncio.sleep(self._random.uniform(0, 0.1))
        self._machine.heal_disk()
        if self.is_up:  # its start may have failed by then
            await self.kill()

    async def fill_disk(self) -> None:
        self._machine.fill_disk()
        await asyncio.sleep(self._random.uniform(0, 0.5))
        self._machine.heal_disk()

    async def lose_disk(self) -> None:
        """An empty one takes its place, and the broker joins those that are up."""
        mine = self._machine.address
        self._machine.lose_disk(join=[each for each in self._network.addresses if each != mine])
        await self._boot_again()

    def heal(self) -> None:
        self._network.heal()
        self._machine.heal_disk()
        if not self._machine.is_up:
            self._machine.boot()


Fault = Callable[[Faults], Any]
Accidents = Callable[["World"], Awaitable[None]]
"""Accidents in a given order, before those by chance."""


class World:
    """Machines with a broker each, their network and their clients."""

    def __init__(
        self,
        seed: int,
        settings: Mapping[str, Any],
        faults: Sequence[Fault],
        nodes: int,
        accidents: "Accidents | None" = None,
    ) -> None:
        self._possible, self._accidents = faults, accidents
        loop = asyncio.get_running_loop()
        self.random = Random(seed)
        self.network = Network(self._fork())
        self._clock = LoopClock(loop)
        self._addresses = [(f"node-{each}", PORT) for each in range(1, nodes + 1)]
        self.machines = [
            Machine(
                self.network,
                self._clock,
                self._fork(),
                settings={**BROKER, **settings},
                node_id=node_id,
                join=[address for address in self._addresses if node_id > 1],
            )
            for node_id in range(1, nodes + 1)
        ]
        away_s_max = ALONE_AWAY_S_MAX if nodes == 1 else AWAY_S_MAX
        self._idle = [
            Faults(each, self.network, self._fork(), away_s_max=away_s_max)
            for each in self.machines
        ]
        """Of the machines that nothing befalls just now."""
        self._under_way = list[asyncio.Future[None]]()
        self._is_disk_lost = False
        self.seen = Observed(compacted={each.topic for each in NEWEST})
        self.said: list[str] = []
        """The faults that there were, with their times."""
        self.files = FileChecker()
        self.found_in_files: list[str] = []
        self._newest: Broker | None = None
        """The one with the newest metadata that any has had. It may be down: those that are up may
        not have heard who is in sync now."""
        self._syncs = settings.get("fsync") != "never"
        self.clients: list[Client] = [
            WriterClient(self._wire("w1"), ORDERS),
            WriterClient(self._wire("w2"), ORDERS),
            WriterClient(self._wire("keyed"), NEWEST, is_keyed=True),
            AppendingClient(self._wire("plain"), ORDERS),
            RelayClient(self._wire("relay"), ORDERS, COPIES),
        ]
        everything = [*ORDERS, *COPIES, *NEWEST]
        self.readers: list[Client] = [
            ReaderClient(self._wire(str(each), rack=machine.name), everything, each)
            for each, machine in zip(Isolation, reversed(self.machines * 2), strict=False)
        ]
        """They are in the racks of machines that follow most partitions at first."""

    def _wire(self, name: str, *, rack: str = "") -> Wiring:
        open_log = simulated_log(name, self.network, *self._addresses, rack=rack)
        return Wiring(name, open_log, self._clock, self._fork(), self.seen)

    def node_of(self, machine: Machine) -> int:
        return self.machines.index(machine) + 1

    async def move(self, at: TopicPartition, replicas: Sequence[int]) -> None:
        """Moves a partition to these nodes, and returns before it is there."""
        log = self._new_log("mover")
        await log.brokers.move({at: replicas})
        await log.close()

    def open_reader(self, name: str, *, knowing: Sequence[Machine]) -> ReaderClient:
        """One more reader, which begins at these machines."""
        addresses = [(each.name, PORT) for each in knowing]
        open_log = simulated_log(name, self.network, *addresses)
        wiring = Wiring(name, open_log, self._clock, self._fork(), self.seen)
        return ReaderClient(wiring, ORDERS, Isolation.UNCOMMITTED)

    def _fork(self) -> Random:
        return Random(self.random.random())

    async def live(self, virtual_s: float) -> None:
        """Works under faults for a time, and then without any until everybody has succeeded."""
        for machine in self.machines:
            machine.boot()
        await asyncio.gather(*(machine.started() for machine in self.machines))
        await self._create_topics()
        works = [asyncio.ensure_future(each.work()) for each in [*self.clients, *self.readers]]
        looks = asyncio.ensure_future(self._look_on())
        end_s = asyncio.get_running_loop().time() + virtual_s
        if self._accidents is not None:
            await self._accidents(self)
        while (left_s := end_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left_s, self.random.expovariate(1 / FAULT_S)))
            broken = [each for each in works if each.done()]
            assert not broken, [each.exception() for each in broken]
            if self._possible and self._idle:
                self._under_way.append(asyncio.ensure_future(self._fail()))
        await asyncio.gather(*self._under_way)
        for faults in self._idle:
            faults.heal()
        await settle(self.clients, self.seen, within_s=SETTLED_S)
        for each in [*self.clients, *self.readers]:
            each.is_over = True
        await asyncio.gather(*works)
        relay = next(each for each in self.clients if isinstance(each, RelayClient))
        drained = drain_relay(relay, self.seen, within_s=SETTLED_S)
        for look in (drained, self._read_everything()):
            try:
                await look
            except HeadwaterError as error:
                self.seen.stuck.append(str(error))
        await self._until_in_sync()
        looks.cancel()
        self.look_at_files()
        for each in [*self.clients, *self.readers]:
            await each.log.close()
        await asyncio.gather(*(machine.stop() for machine in self.machines))
        stopped = {node: each.written for node, each in enumerate(self.machines, 1)}
        self.found_in_files += problems_of_stopped(stopped, compacted=COMPACTED_TOPICS)

    async def _look_on(self) -> None:
        while len(self.machines) > 1:
            self.look_at_files()
            await asyncio.sleep(FILES_S)

    def look_at_files(self) -> None:
        """Holds all disks against each other, as they are now. A log with one broker has rules of
        its own, see decision 7."""
        brokers = {
            node: broker
            for node, machine in enumerate(self.machines, 1)
            if (broker := machine.broker) is not None
        }
        if len(self.machines) == 1 or not brokers:
            return
        heard = [*brokers.values(), *([] if self._newest is None else [self._newest])]
        newest = self._newest = max(heard, key=lambda each: each.image.end_offset)
        empty = self._list_empty(newest.image)
        written = {node: each.written for node, each in enumerate(self.machines, 1)}
        look = Look(
            written=written,
            synced={node: each.synced for node, each in enumerate(self.machines, 1)}
            if self._syncs
            else written,
            told={
                node: {
                    TopicPartition(p.topic, p.index): p.high_watermark for p in each.replicas.all
                }
                for node, each in brokers.items()
            },
            assignments={
                TopicPartition(topic.name, each.partition): Assignment(
                    tuple(node for node in each.in_sync if node not in empty),
                    min(newest.configs.min_in_sync(topic.config), len(each.replicas)),
                )
                for topic, each in newest.image.partitions
            },
            compacted=COMPACTED_TOPICS,
        )
        now_s = asyncio.get_running_loop().time()
        self.found_in_files += [f"{each} ({now_s:.3f})" for each in self.files.problems_of(look)]

    def _list_empty(self, image: MetadataImage) -> list[int]:
        """Returns the nodes that have lost the disk of which the cluster still knows."""
        return [
            node
            for node, machine in enumerate(self.machines, 1)
            if machine.lost_directories
            and node in image.brokers
            and image.brokers[node].directory_id in {NO_ID, *machine.lost_directories}
        ]

    async def _until_in_sync(self) -> None:
        """Every replica has everything again, and every vote is with a disk that is there."""
        end_s = asyncio.get_running_loop().time() + SETTLED_S
        while behind := self._list_behind():
            if asyncio.get_running_loop().time() > end_s:
                self.seen.stuck += [f"replicas of {each}" for each in behind]
                return
            await asyncio.sleep(LOOK_S)

    def _list_behind(self) -> list[str]:
        brokers = [each.broker for each in self.machines if each.broker is not None]
        newest = max(brokers, key=lambda each: each.image.end_offset)
        partitions = [
            f"{topic.name}-{each.partition}"
            for topic, each in newest.image.partitions
            if len(each.in_sync) < len(each.replicas)
        ]
        numbered = enumerate(self.machines, 1)
        there = {(node, machine.directory_id) for node, machine in numbered}
        voters = {(each.node_id, each.directory_id) for each in newest.quorum.voters}
        is_voted = voters <= there and len(voters) == min(len(there), VOTERS)
        return partitions if is_voted else [*partitions, "the metadata quorum"]

    @property
    def is_whole(self) -> bool:
        """Whether any one disk may be lost: all others have what it holds."""
        brokers = [each.broker for each in self.machines if each.broker is not None]
        return (
            len(brokers) == len(self.machines)
            and not any(each.store.losses for each in brokers)
            and all(each.quorum.voters == brokers[0].quorum.voters for each in brokers)
            and not self._list_behind()
        )

    async def _create_topics(self) -> None:
        log = self._new_log("creator")
        config = {"min.insync.replicas": "2"} if len(self.machines) > 1 else {}
        topics = [each.model_copy(update={"config": each.config | config}) for each in TOPICS]
        await log.ensure_topic(*topics)
        await log.close()

    def _new_log(self, name: str) -> KafkaLog:
        return simulated_log(name, self.network, *self._addresses)(self._fork())

    async def _read_everything(self) -> None:
        log = self._new_log("last")
        everything = [*ORDERS, *COPIES, *NEWEST]
        await read_everything(log, everything, self.seen, within_s=SETTLED_S)
        await log.close()

    async def _fail(self) -> None:
        faults = self.random.choice(self._idle)
        self._idle.remove(faults)
        fault = self.random.choice(self._possible)
        now_s = asyncio.get_running_loop().time()
        if faults.is_up and self._may_befall(fault):
            self.said.append(f"{now_s:.3f} {fault.__name__} {faults.name}")
            await fault(faults)
        self._idle.append(faults)

    def _may_befall(self, fault: Fault) -> bool:
        """A cluster bears the loss of one disk, and no further one before all is as it was."""
        self._is_disk_lost = self._is_disk_lost and not self.is_whole
        if fault is not Faults.lose_disk:
            return not self._is_disk_lost or fault not in OF_DISKS
        is_only = len(self._idle) == len(self.machines) - 1
        is_possible = is_only and not self._is_disk_lost and self.is_whole
        self._is_disk_lost = self._is_disk_lost or is_possible
        return is_possible


FAULTS: Sequence[Fault] = [
    Faults.kill,
    Faults.cut_power,
    Faults.restart,
    Faults.stall,
    Faults.reset_connections,
    Faults.cut_link,
    Faults.fail_syncs,
    Faults.fail_syncs_and_kill,
    Faults.fill_disk,
]
CLUSTER_FAULTS: Sequence[Fault] = [*FAULTS, Faults.isolate]
OF_DISKS: Sequence[Fault] = [
    Faults.cut_power,
    Faults.fail_syncs,
    Faults.fail_syncs_and_kill,
    Faults.fill_disk,
]
"""These may cost a voter its log, with which it voted."""


def play(
    seed: int,
    *,
    virtual_s: float = 20.0,
    faults: Sequence[Fault] = FAULTS,
    nodes: int = 1,
    accidents: Accidents | None = None,
    trace: Trace | None = None,
    **settings: Any,
) -> History:
    """Plays one history; the same seed always leads to the same one."""
    random, trace = Random(seed), trace or Trace()

    async def work() -> History:
        world = World(seed, settings, faults, nodes, accidents)
        await world.live(virtual_s)
        digest = hashlib.sha256(repr(world.seen).encode() + trace.digest.encode())
        for machine in world.machines:
            for path, content in sorted(machine.content().items()):
                digest.update(path.encode() + content)
        problems = [*problems_of(world.seen), *world.found_in_files]
        return History(seed, problems, digest.hexdigest(), world.said, world.seen)

    return simulate(random, work, trace)
