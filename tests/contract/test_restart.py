"""A broker that restarts is waited for; whatever a client was told holds before and after."""

import asyncio
from pathlib import Path

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import Isolation, TopicPartition
from scripts.free_port import free_port
from tests.contract.conftest import connect_to
from tests.contract.records import PATIENT, batch_of, read_all, values_in

ORDERS = TopicPartition("orders", 0)


class Broker:
    """Keeps its port and its data directory from one run to the next."""

    def __init__(self, data: Path) -> None:
        listen = f"127.0.0.1:{free_port()}"
        self.settings = BrokerSettings(data=data, listen=listen, internal_partitions=1)
        self._running: RunningBroker | None = None

    async def start(self) -> str:
        self._running = await RunningBroker.start(self.settings)
        return self._running.endpoint

    async def stop(self) -> None:
        assert self._running is not None, "only what runs can stop"
        await self._running.stop()

    async def restart(self) -> None:
        await self.stop()
        await asyncio.sleep(0.05)  # for clients to find nobody there
        await self.start()


async def connected(broker: Broker) -> KafkaLog:
    log = connect_to(await broker.start())
    await log.ensure_topic(TopicSettings(name="orders"))
    return log


async def test_appends_go_on_after_a_restart(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = await connected(broker)
    await log.append(ORDERS, batch_of("before"))

    restarting = asyncio.ensure_future(broker.restart())
    offsets = [await log.append(ORDERS, batch_of(f"during {n}")) for n in range(20)]
    await restarting
    await log.append(ORDERS, batch_of("after"))

    values = await read_all(log, ORDERS)
    assert offsets == sorted(set(offsets))
    assert (values[0], values[-1]) == ("before", "after")
    assert {f"during {n}" for n in range(20)} < set(values)
    await log.close()
    await broker.stop()


async def test_a_reader_that_waits_goes_on_after_a_restart(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = await connected(broker)
    waiting = asyncio.ensure_future(
        log.fetch({ORDERS: 0}, limit=PATIENT, isolation=Isolation.COMMITTED)
    )
    await asyncio.sleep(0.01)

    await broker.restart()
    await log.append(ORDERS, batch_of("news"))

    found: list[str] = values_in(await waiting)
    while not found:
        found = values_in(
            await log.fetch({ORDERS: 0}, limit=PATIENT, isolation=Isolation.COMMITTED)
        )
    assert found == ["news"]
    await log.close()
    await broker.stop()


@pytest.mark.slow
async def test_transactions_are_whole_across_restarts(tmp_path: Path) -> None:
    """Each one either counts or raises; a writer that does not know is opened anew."""
    broker = Broker(tmp_path)
    log = await connected(broker)
    writer, certain, uncertain = await log.writer("writer"), list[str](), list[str]()

    restarts = asyncio.ensure_future(restart_often(broker))
    number = 0
    while not restarts.done() or number < 20:
        number += 1
        try:
            async with writer.transaction() as transaction:
                await transaction.append(ORDERS, batch_of(f"{number}a"))
                await transaction.append(ORDERS, batch_of(f"{number}b"))
            certain += [f"{number}a", f"{number}b"]
        except LogUnavailable:
            uncertain += [f"{number}a", f"{number}b"]
            writer = await log.writer("writer")
    await restarts

    values = await read_all(log, ORDERS)
    assert len(values) == len(set(values))
    assert [value for value in values if value in certain] == certain
    assert set(values) <= {*certain, *uncertain}
    assert all(value[:-1] + "b" in values for value in values if value.endswith("a"))
    await log.close()
    await broker.stop()


async def restart_often(broker: Broker) -> None:
    for _ in range(4):
        await asyncio.sleep(0.03)
        await broker.restart()
