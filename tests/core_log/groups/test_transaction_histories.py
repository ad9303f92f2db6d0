"""Whatever crashes, fails, arrives late or twice: a transaction is visible whole or not at all."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import LogUnavailable, StorageFailed
from headwater.core_log.groups.transaction_coordinator import (
    TransactionCoordinator,
    TransactionLimits,
)
from headwater.core_log.groups.transactions import VERSION_1, StoredTransaction
from headwater.core_log.model.log import TopicPartition
from tests.core_log.groups.simulated_world import SimulatedPartition, SimulatedPartitions, World
from tests.core_log.groups.transaction_clients import TIMEOUT_MS, Client, Outcome

pytestmark = pytest.mark.simulation

STEPS_MS = (1, 10, 100, TIMEOUT_MS // 50)
"""From one look of the broker to the next; some transactions take too long."""
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
LIMITS = TransactionLimits(save_after_ms=50, retry_ms=1)
UNMARKED_HISTORIES = 20
HISTORIES = max(25, settings().max_examples // 4)


def new_coordinator(world: World) -> TransactionCoordinator:
    coordinator = TransactionCoordinator(
        partition_count=lambda: 2,
        open_state_log=world.open_state_log,
        partitions=SimulatedPartitions(world),
        allocate_producer_ids=world.allocate_producer_ids,
        clock=world,
        limits=LIMITS,
    )
    for index in range(2):
        coordinator.load(index, leader_epoch=world.run)
    return coordinator


async def tick(world: World, coordinator: TransactionCoordinator) -> None:
    while True:
        await world.pause()
        world.now_ms_value += world.random.choice(world.steps_ms)
        await coordinator.tick(world.now_ms())


async def lose_disks(world: World, coordinator: TransactionCoordinator) -> None:
    while True:
        for _ in range(world.random.randrange(20, 100)):
            await world.pause()
        at = world.random.choice(PARTITIONS)
        partition = world.data[at]
        partition.is_offline, is_whole = True, True
        await world.pause()
        while partition.is_offline:
            is_whole &= partition.reopen(world.random)
            opened = list(partition.open_transactions().values())
            with suppress(LogUnavailable):
                await coordinator.on_partition_reopened(at, opened, is_whole=is_whole)
                partition.is_offline = False


async def run_broker(world: World, clients: list[Client], *, was_clean: bool) -> bool:
    """One life of a broker; returns whether it ended cleanly."""
    fails, world.fails = world.fails, 0.0
    coordinator = new_coordinator(world)
    await coordinator.recover(world.open_transactions(), was_clean=was_clean)
    world.fails = fails
    works = [asyncio.ensure_future(tick(world, coordinator))]
    if fails:
        works.append(asyncio.ensure_future(lose_disks(world, coordinator)))
    for client in clients:
        works.append(asyncio.ensure_future(client.work(coordinator)))
        works.append(asyncio.ensure_future(client.repeat_itself(coordinator)))
    for _ in range(world.random.randrange(400)):
        await asyncio.sleep(0)
        dead = [work for work in works if work.done()]
        assert not dead, [work.exception() for work in dead]
    for work in works:
        work.cancel()
    await asyncio.gather(*works, return_exceptions=True)
    stops_cleanly = world.random.random() < 0.3
    if stops_cleanly:
        world.fails = 0.0
        try:
            await coordinator.drain()
        except StorageFailed:
            stops_cleanly = False
        await SimulatedPartitions(world).sync(PARTITIONS)
        world.fails = fails
    world.crash(loses_power=not stops_cleanly and world.random.random() < 0.7)
    return stops_cleanly


async def settle(world: World) -> None:
    """A last start, and time enough for everything that was left open."""
    world.fails = 0.0
    coordinator = new_coordinator(world)
    await coordinator.recover(world.open_transactions(), was_clean=False)
    for _ in range(3):
        world.now_ms_value += 2 * TIMEOUT_MS
        await coordinator.tick(world.now_ms())


async def history(seed: int, *, fails: float, steps_ms: Sequence[int] = STEPS_MS) -> int:
    """Returns how often a client of version 1 was fenced, all of which are alive."""
    random = Random(seed)
    world = World(random, fails=fails, steps_ms=steps_ms)
    world.data = {at: SimulatedPartition() for at in PARTITIONS}
    clients = [Client(world, name, PARTITIONS) for name in ("payments", "orders")]
    was_clean = True
    for _ in range(random.randrange(1, 5)):
        was_clean = await run_broker(world, clients, was_clean=was_clean)
        check_what_was_told(world, clients)
    await settle(world)

    for at, partition in world.data.items():
        assert not partition.open_transactions(), f"a transaction hangs in {at}"
    check_what_was_told(world, clients, is_settled=True)
    return sum(each.fenced_count for each in clients if each.version == VERSION_1)


def check_what_was_told(world: World, clients: list[Client], *, is_settled: bool = False) -> None:
    visible = {at: partition.committed() for at, partition in world.data.items()}
    for client in clients:
        for told in client.told:
            seen = [
                batch in visible[at] for at, sent in told.acknowledged.items() for batch in sent
            ]
            if is_settled:
                assert all(seen) or not any(seen), f"torn: {told}"
            if is_settled and told.outcome is Outcome.COMMITTED:
                assert all(seen), f"committed and lost: {told}"
            if told.outcome in (Outcome.ABORTED, Outcome.OPEN):
                assert not any(seen), f"never committed, and seen: {told}"


@pytest.mark.parametrize("fails", [0.0, 0.05], ids=["disks that hold", "disks that fail"])
@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 2**32))
def test_no_history_tears_a_transaction(fails: float, seed: int) -> None:
    with suppress(asyncio.CancelledError):
        asyncio.run(history(seed, fails=fails))


@pytest.mark.parametrize("fails", [0.0, 0.05], ids=["disks that hold", "disks that fail"])
@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 2**32))
def test_no_live_producer_is_fenced_in_time(fails: float, seed: int) -> None:
    assert asyncio.run(history(seed, fails=fails, steps_ms=(1, 10))) == 0


def test_clients_of_version_1_tear_transactions_without_the_mark_of_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StoredTransaction, "is_aborted_unheard", property(lambda _: False))

    torn = [seed for seed in range(UNMARKED_HISTORIES) if is_torn(seed)]

    assert torn


def is_torn(seed: int) -> bool:
    try:
        asyncio.run(history(seed, fails=0.0))
    except AssertionError as error:
        return str(error).startswith(("torn", "committed and lost", "never committed"))
    return False
