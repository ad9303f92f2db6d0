"""How long writers stand still, on virtual time, when a broker is gone; and that none is taken for
gone because connections broke."""

import asyncio
import logging
from collections.abc import Collection, Iterator
from random import Random

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.replication.elections import ElectionType
from headwater.core_log.replication.liveness import HEARTBEAT_MS
from tests.simulation.checker import Outcome, Sent
from tests.simulation.load import batch_of
from tests.simulation.machine import PORT, Machine
from tests.simulation.test_rules import (
    broker_of,
    controller_of,
    led_by_member,
    record_of,
    until,
)
from tests.simulation.virtual_time import EPOCH_MS
from tests.simulation.world import ORDERS, World, play

pytestmark = [pytest.mark.simulation, pytest.mark.slow]
HEARTBEAT_S = HEARTBEAT_MS / 1_000


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Writer:
    """Appends one record after another, with the settings that clients have."""

    def __init__(self, world: World, at: TopicPartition) -> None:
        settings = KafkaSettings(bootstrap=[f"{each.name}:{PORT}" for each in world.machines])
        self._log = KafkaLog(settings, dial=world.network.dialer("paused"), random=Random(1))
        self._at, self._seen, self.is_over = at, world.seen, False
        self.longest_s, self.count = 0.0, 0

    async def work(self) -> None:
        time = asyncio.get_running_loop().time
        answered_s = time()
        while not self.is_over:
            self.count += 1
            value = f"paused/{self.count}"
            sent = Sent("paused", 0, [(self._at, value)], is_exact=False)
            self._seen.sent.append(sent)
            await self._log.append(self._at, batch_of([value], EPOCH_MS))
            sent.outcome = Outcome.COMMITTED
            self.longest_s = max(self.longest_s, time() - answered_s)
            answered_s = time()
            await asyncio.sleep(0.002)
        await self._log.close()


def break_connections(world: World, clients: Collection[Machine]) -> None:
    names = {each.name for each in clients}
    for each in list(world.network.connections):
        if each.client in names:
            each.close("connection reset by peer")


@pytest.mark.parametrize("was_looked_at", [False, True])
def test_a_writer_does_not_wait_for_heartbeats_that_a_killed_leader_does_not_send(
    was_looked_at: bool,
) -> None:
    """A controller that has looked at it before has a connection, which ends at the same time."""

    async def leader_is_killed(world: World) -> None:
        await asyncio.sleep(2.0 + world.random.uniform(0, HEARTBEAT_S))
        at, leader = led_by_member(world)
        writer = Writer(world, at)
        working = asyncio.ensure_future(writer.work())
        if was_looked_at:
            break_connections(world, [leader])
        await asyncio.sleep(1.0)
        leader.kill()
        await asyncio.sleep(4.0)
        writer.is_over = True
        await working
        leader.boot()
        found.append(writer)

    found = list[Writer]()

    history = play(1, virtual_s=0, faults=(), nodes=3, accidents=leader_is_killed)

    assert found[0].longest_s < HEARTBEAT_S and found[0].count > 100
    assert not history.problems


def test_a_living_broker_is_not_fenced_because_its_connections_break() -> None:
    async def connections_break(world: World) -> None:
        await asyncio.sleep(2.0)
        controller = controller_of(world)
        members = [each for each in world.machines if each is not controller]
        image = broker_of(controller).image
        before = dict(image.brokers)
        for _ in range(20):
            break_connections(world, members)
            await asyncio.sleep(0.3)
            seen.append(dict(image.brokers) == before)

    seen = list[bool]()

    history = play(1, virtual_s=0, faults=(), nodes=3, accidents=connections_break)

    assert not history.problems
    assert seen == [True] * 20


def test_a_new_controller_elects_nobody_unheard_while_another_was_heard() -> None:
    """The controller falls silent, and with it the replica that stands next in the order."""

    async def two_fall_silent(world: World) -> None:
        await until(lambda: world.is_whole)
        controller = controller_of(world)
        broker, at = broker_of(controller), ORDERS[0]
        voters = [each.node_id for each in broker.quorum.voters]
        silent, heard = (node for node in range(1, 6) if node not in voters)
        chosen = (world.node_of(controller), silent, heard)
        await world.move(at, chosen)
        await until(lambda: record_of(world, at).in_sync == record_of(world, at).replicas == chosen)
        elections = broker.controller.elections
        await broker.metadata.change(lambda: elections.elect(ElectionType.PREFERRED, [at]))
        await until(lambda: world.is_whole)
        gone = [controller, world.machines[silent - 1]]
        for each in gone:
            assert each.process is not None
            each.process.pause()
        other = broker_of(world.machines[heard - 1]).image
        leaders = []

        def is_led() -> bool:
            record = other.partition(*at)
            assert record is not None
            leaders.append(record.leader)
            return record.leader == heard

        await until(is_led)
        found.append(silent in leaders)
        for each in gone:
            assert each.process is not None
            each.process.resume()

    found = list[bool]()

    history = play(1, virtual_s=0, faults=(), nodes=5, accidents=two_fall_silent)

    assert found == [False]
    assert not history.problems
