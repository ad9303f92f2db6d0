"""One history: a broker, its clients, and what goes wrong, all from one seed."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from tests.simulation.checker import Observed, problems_of
from tests.simulation.load import (
    AppendingClient,
    Client,
    ReaderClient,
    RelayClient,
    Wiring,
    WriterClient,
    client_settings,
    records_in,
)
from tests.simulation.machine import Machine
from tests.simulation.network import Network
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
BROKER: Mapping[str, Any] = {"internal_partitions": 2, "housekeeping_interval_ms": 500}
FAULT_S = 1.0
"""Time between two faults, on average."""
SETTLED_S = 10.0
"""Once nothing fails any more, everybody succeeds again within this time."""


@dataclass(frozen=True)
class History:
    """What one seed has led to."""

    seed: int
    problems: list[str]
    digest: str
    """Of all bytes on the disk, and of all that clients saw."""
    faults: list[str]
    seen: Observed


class Faults:
    """Everything that may go wrong with a machine and the connections to it. Each fault is over
    when its method returns, but that a broker which is down must be booted."""

    def __init__(self, machine: Machine, network: Network, random: Random) -> None:
        self._machine, self._network, self._random = machine, network, random

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
        await asyncio.sleep(self._random.uniform(0, 0.5))
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
        clients = self._network.clients
        if not clients:  # none has come back since the last fault
            return
        client = self._random.choice(clients)
        directions = self._random.choice([("requests",), ("answers",), ("requests", "answers")])
        self._network.cut_off(client, *directions)
        await asyncio.sleep(self._random.choice([0.1, 1.0, 4.0]))
        self._network.heal()

    async def fail_syncs(self) -> None:
        self._machine.fail_syncs()
        await asyncio.sleep(self._random.uniform(0, 0.5))
        self._machine.heal_disk()

    async def fail_syncs_and_kill(self) -> None:
        """The next process finds files whose last sync has failed."""
        self._machine.fail_syncs()
        await asyncio.sleep(self._random.uniform(0, 0.1))
        self._machine.heal_disk()
        self._machine.kill()
        await self._boot_again()

    async def fill_disk(self) -> None:
        self._machine.fill_disk()
        await asyncio.sleep(self._random.uniform(0, 0.5))
        self._machine.heal_disk()

    def heal(self) -> None:
        self._network.heal()
        self._machine.heal_disk()
        if not self._machine.is_up:
            self._machine.boot()


Fault = Callable[[Faults], Any]


class World:
    """A machine, its network and its clients."""

    def __init__(self, seed: int, settings: Mapping[str, Any], faults: Sequence[Fault]) -> None:
        self._possible = faults
        loop = asyncio.get_running_loop()
        self.random = Random(seed)
        self.network = Network(self._fork())
        self.machine = Machine(
            self.network, LoopClock(loop), self._fork(), settings={**BROKER, **settings}
        )
        self.faults = Faults(self.machine, self.network, self._fork())
        self.seen = Observed(compacted={each.topic for each in NEWEST})
        self.said: list[str] = []
        """The faults that there were, with their times."""
        self.clients: list[Client] = [
            WriterClient(self._wire("w1"), ORDERS),
            WriterClient(self._wire("w2"), ORDERS),
            WriterClient(self._wire("keyed"), NEWEST, is_keyed=True),
            AppendingClient(self._wire("plain"), ORDERS),
            RelayClient(self._wire("relay"), ORDERS, COPIES),
        ]
        everything = [*ORDERS, *COPIES, *NEWEST]
        self.readers: list[Client] = [
            ReaderClient(self._wire(str(each)), everything, each) for each in Isolation
        ]

    def _wire(self, name: str) -> Wiring:
        return Wiring(name, self.machine.address, self.network, self._fork(), self.seen)

    def _fork(self) -> Random:
        return Random(self.random.random())

    async def live(self, virtual_s: float) -> None:
        """Works under faults for a time, and then without any until everybody has succeeded."""
        self.machine.boot()
        await self._create_topics()
        works = [asyncio.ensure_future(each.work()) for each in [*self.clients, *self.readers]]
        end_s = asyncio.get_running_loop().time() + virtual_s
        while (left_s := end_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left_s, self.random.expovariate(1 / FAULT_S)))
            broken = [each for each in works if each.done()]
            assert not broken, [each.exception() for each in broken]
            if self._possible:
                await self._fail()
        self.faults.heal()
        await self._settle()
        for each in [*self.clients, *self.readers]:
            each.is_over = True
        await asyncio.gather(*works)
        try:
            await self._drain_relay()
            await self._read_everything()
        except HeadwaterError as error:
            self.seen.stuck.append(str(error))
        for each in [*self.clients, *self.readers]:
            await each.log.close()
        await self.machine.stop()

    async def _create_topics(self) -> None:
        log = self._new_log("creator")
        await log.ensure_topic(*TOPICS)
        await log.close()

    def _new_log(self, name: str) -> KafkaLog:
        return KafkaLog(
            client_settings(self.machine.address),
            dial=self.network.dialer(name),
            random=self._fork(),
        )

    async def _fail(self) -> None:
        fault = self.random.choice(self._possible)
        self.said.append(f"{asyncio.get_running_loop().time():.3f} {fault.__name__}")
        await fault(self.faults)

    async def _settle(self) -> None:
        """Liveness: every client does something within the time."""
        before = {each.name: each.done_count for each in self.clients}
        end_s = asyncio.get_running_loop().time() + SETTLED_S
        while waiting := [each for each in self.clients if each.done_count <= before[each.name]]:
            if asyncio.get_running_loop().time() > end_s:
                self.seen.stuck += [each.name for each in waiting]
                return
            await asyncio.sleep(0.05)

    async def _drain_relay(self) -> None:
        """Lets the relay copy what is left, until it finds nothing more."""
        relay = next(each for each in self.clients if isinstance(each, RelayClient))
        while True:
            before = len(self.seen.sent)
            await relay.step()
            if len(self.seen.sent) == before:
                return

    async def _read_everything(self) -> None:
        log, limit = self._new_log("last"), FetchLimit(wait_ms_max=0)
        everything = [*ORDERS, *COPIES, *NEWEST]
        end_s = asyncio.get_running_loop().time() + SETTLED_S
        while True:
            bounds = await log.bounds(everything)
            open_at = {str(at): each for at, each in bounds.items() if each.stable < each.end}
            if not open_at:
                break
            if asyncio.get_running_loop().time() > end_s:
                self.seen.stuck += [f"open transaction in {at}" for at in open_at]
                break
            await asyncio.sleep(0.1)
        for at in everything:
            offset, found = bounds[at].start, self.seen.final.setdefault(at, [])
            while offset < bounds[at].stable:
                for each in await log.fetch(
                    {at: offset}, limit=limit, isolation=Isolation.COMMITTED
                ):
                    found += records_in(each.data, from_offset=offset)
                    offset = each.next_offset
        await log.close()


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


def play(
    seed: int,
    *,
    virtual_s: float = 20.0,
    faults: Sequence[Fault] = FAULTS,
    **settings: Any,
) -> History:
    """Plays one history; the same seed always leads to the same one."""
    random = Random(seed)

    async def work() -> History:
        world = World(seed, settings, faults)
        await world.live(virtual_s)
        digest = hashlib.sha256(repr(world.seen).encode())
        for path, content in sorted(world.machine.content().items()):
            digest.update(path.encode() + content)
        problems = problems_of(world.seen)
        return History(seed, problems, digest.hexdigest(), world.said, world.seen)

    return simulate(random, work)
