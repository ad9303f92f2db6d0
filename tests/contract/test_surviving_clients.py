"""Clients outlive the power cuts of their broker, and neither lose nor commit what was lost."""

import asyncio
from asyncio import Future
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.links.connection import Channel, ConnectionLost
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from tests.contract.records import batch_of, read_all, values_in
from tests.fakes import MemoryFiles

pytestmark = pytest.mark.slow

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Refused(Exception):
    """What the tests raise inside a transaction."""


class Machine:
    """A broker whose power can be cut: from that moment on nobody hears anything of it."""

    def __init__(self, seed: int) -> None:
        self.random, self._files = Random(seed), MemoryFiles()
        self._running: RunningBroker | None = None
        self._lines: list[Line] = []

    async def start(self) -> None:
        settings = BrokerSettings(data=Path("/data"), listen="127.0.0.1:0", internal_partitions=1)
        self._running = await RunningBroker.start(settings, files=self._files, random=self.random)

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.stop()

    async def cut_power(self) -> None:
        after = self._files.after_power_cut(self.random)
        for line in self._lines:
            line.close()
        self._lines.clear()
        await self.stop()  # what it still does reaches neither clients nor the files that survive
        self._files = after
        await self.start()

    async def dial(self, host: str, port: int) -> Channel:
        if self._running is None:
            raise ConnectionLost("the machine is off")
        line = Line(InProcessChannel(self._running.server, self._running.server.address))
        self._lines.append(line)
        return line


class Line:
    """The wire to the broker, with the machine's power."""

    is_in_process = True

    def __init__(self, inner: Channel) -> None:
        self._inner, self.is_open = inner, True
        self._waiting: set[Future[memoryview]] = set()

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def ask(self, frame: bytearray, correlation_id: int) -> "Future[memoryview]":
        arriving: Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.add(arriving)
        arriving.add_done_callback(self._waiting.discard)
        if not self.is_open:
            arriving.set_exception(ConnectionLost("the power is off"))
            return arriving
        asked = self._inner.ask(frame, correlation_id)
        asked.add_done_callback(lambda answer: self._pass_on(answer, arriving))
        return arriving

    def tell(self, frame: bytearray) -> None:
        if self.is_open:
            self._inner.tell(frame)

    def _pass_on(self, answer: "Future[memoryview]", arriving: "Future[memoryview]") -> None:
        failure = None if answer.cancelled() else answer.exception()
        if arriving.done():
            return
        if not self.is_open or isinstance(failure, LogUnavailable) or answer.cancelled():
            arriving.set_exception(ConnectionLost("the power went off"))
        elif failure is not None:
            arriving.set_exception(failure)
        else:
            arriving.set_result(answer.result())

    def close(self) -> None:
        self.is_open = False
        for arriving in list(self._waiting):
            if not arriving.done():
                arriving.set_exception(ConnectionLost("the power went off"))


class Client:
    """Writes transactions until told to stop, and notes what it knows of each."""

    def __init__(self, log: KafkaLog, name: str, random: Random) -> None:
        self._log, self._name, self._random = log, name, random
        self.went_on = asyncio.Event()
        self.certain: list[str] = []
        self.uncertain: set[str] = set()

    async def write(self, stop: asyncio.Event) -> None:
        writer = await self._log.writer(self._name)
        number = 0
        while not stop.is_set():
            number += 1
            value = f"{self._name}-{number}"
            try:
                async with writer.transaction() as transaction:
                    await transaction.append(ZERO, batch_of(value))
                    await transaction.append(ONE, batch_of(value))
                    if self._random.random() < 0.2:
                        raise Refused
                self.certain.append(value)
                self.went_on.set()
            except Refused:
                pass
            except LogUnavailable:
                self.uncertain.add(value)
                writer = await self._log.writer(self._name)


async def read(log: KafkaLog, seen: dict[TopicPartition, list[str]], stop: asyncio.Event) -> None:
    wanted = {ZERO: 0, ONE: 0}
    while not stop.is_set():
        for part in await log.fetch(
            wanted, limit=FetchLimit(wait_ms_max=20), isolation=Isolation.COMMITTED
        ):
            wanted[part.partition] = part.next_offset
            seen[part.partition] += values_in([part])


async def append(log: KafkaLog, acknowledged: list[str], stop: asyncio.Event) -> None:
    while not stop.is_set():
        value = f"plain-{len(acknowledged)}"
        await log.append(ZERO, batch_of(value))
        acknowledged.append(value)


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_lost_torn_or_repeated_across_power_cuts(seed: int) -> None:
    machine = Machine(seed)
    await machine.start()
    settings = KafkaSettings(bootstrap=["machine:1"], retry_for_ms=20_000)
    log = KafkaLog(settings, dial=machine.dial)
    await log.ensure_topic(TopicSettings(name="orders", partitions=2))
    stop, acknowledged = asyncio.Event(), list[str]()
    seen: dict[TopicPartition, list[str]] = {ZERO: [], ONE: []}
    clients = [Client(log, name, machine.random) for name in ("one", "two", "three")]

    async with asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(client.write(stop))
        tasks.create_task(append(log, acknowledged, stop))
        tasks.create_task(read(log, seen, stop))
        for _ in range(4):
            await asyncio.sleep(machine.random.uniform(0.01, 0.08))
            await machine.cut_power()
            for client in clients:  # two cuts within one request make a client look like a late one
                client.went_on.clear()
                await client.went_on.wait()
        await asyncio.sleep(0.05)
        stop.set()
    held = {partition: await read_all(log, partition) for partition in (ZERO, ONE)}
    await log.close()
    await machine.stop()

    for partition, values in held.items():
        assert values[: len(seen[partition])] == seen[partition]
        for client in clients:
            mine = [v for v in values if v in client.uncertain or v in client.certain]
            assert [v for v in mine if v not in client.uncertain] == client.certain
            assert len(mine) == len(set(mine))
    transactional = [value for value in held[ZERO] if not value.startswith("plain")]
    assert sorted(transactional) == sorted(held[ONE])
    assert set(transactional) <= {v for c in clients for v in (*c.certain, *c.uncertain)}
    assert set(acknowledged) <= set(held[ZERO])
