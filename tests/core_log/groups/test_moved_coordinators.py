"""Coordinators move from broker to broker, and no transaction is torn, lost or left open."""

import asyncio
from collections.abc import Collection, Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.groups.transaction_coordinator import (
    ProducerAnswer,
    TransactionCoordinator,
    TransactionLimits,
)
from headwater.core_log.groups.transactional_id import TransactionalId
from headwater.core_log.groups.transactions import ProducerIdentity
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.core_log.groups.replicated_world import (
    ReplicatedPartition,
    ReplicatedPartitions,
    ReplicatedStateLog,
    ReplicatedWorld,
)
from tests.core_log.groups.test_transaction_histories import check_what_was_told
from tests.core_log.groups.transaction_clients import TIMEOUT_MS, Client

PARTITIONS = [TopicPartition("t", index) for index in range(3)]
LIMITS = TransactionLimits(save_after_ms=50, retry_ms=1)
STEPS_MS = (1, 10, 100, TIMEOUT_MS // 50)
HISTORIES = max(25, settings().max_examples // 4)


class Brokers:
    """The brokers as clients find them: mostly the coordinator, and now and then a former one,
    which does not know that it was replaced."""

    def __init__(self, world: ReplicatedWorld) -> None:
        self.world = world
        self.coordinators: list[TransactionCoordinator] = []

    def elect(self) -> TransactionCoordinator:
        self.world.elect()
        coordinator = TransactionCoordinator(
            partition_count=lambda: 2,
            open_state_log=self.world.open_replicated_log,
            partitions=ReplicatedPartitions(self.world),
            allocate_producer_ids=self.world.allocate_producer_ids,
            clock=self.world,
            limits=LIMITS,
        )
        for index in range(2):
            coordinator.load(index, leader_epoch=self.world.epoch)
            coordinator.take_over(index)
        self.coordinators.append(coordinator)
        return coordinator

    def find(self) -> TransactionCoordinator:
        random, last_two = self.world.random, self.coordinators[-2:]
        return last_two[-1] if random.random() < 0.9 else random.choice(last_two)

    async def init_producer_id(self, name: str, *, timeout_ms: int) -> ProducerAnswer:
        return await self.find().init_producer_id(name, timeout_ms=timeout_ms)

    async def add_partitions(
        self, name: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> ErrorCode:
        return await self.find().add_partitions(name, producer, partitions)

    async def verify_or_add(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        *,
        may_add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """As a leader of data asks: its answer counts only if no marker came meanwhile."""
        before = self._marker_counts(producer_id, partitions)
        verdicts = await self.find().verify_or_add(
            name, producer_id, epoch, partitions, may_add=may_add
        )
        await self.world.pause()
        if before != self._marker_counts(producer_id, partitions):
            return dict.fromkeys(partitions, ErrorCode.NOT_ENOUGH_REPLICAS)
        return verdicts

    def _marker_counts(
        self, producer_id: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return {at: self.world.replicated[at].marker_count(producer_id) for at in partitions}

    async def end(
        self, name: str, producer: ProducerIdentity, *, commit: bool, version: int
    ) -> ProducerAnswer:
        answer = await self.find().end(name, producer, commit=commit, version=version)
        await self.world.pause()
        return answer

    async def tick(self) -> None:
        while True:
            await self.world.pause()
            self.world.now_ms_value += self.world.random.choice(self.world.steps_ms)
            for each in self.coordinators[-2:]:
                await each.tick(self.world.now_ms())

    async def settle(self) -> None:
        """A last election, and time enough for everything that was left open."""
        self.world.fails = 0.0
        coordinator = self.elect()
        for _ in range(4):
            self.world.now_ms_value += 2 * TIMEOUT_MS
            await coordinator.tick(self.world.now_ms())
            for _ in range(200):
                await asyncio.sleep(0)


async def history(seed: int, *, fails: float) -> None:
    random = Random(seed)
    world = ReplicatedWorld(random, PARTITIONS, fails=fails)
    world.steps_ms = random.choice([STEPS_MS, (1, 10)])
    brokers = Brokers(world)
    clients = [Client(world, name, PARTITIONS) for name in ("payments", "orders")]
    brokers.elect()
    works = [asyncio.ensure_future(brokers.tick())]
    for client in clients:
        works.append(asyncio.ensure_future(client.work(brokers)))  # type: ignore[arg-type]
        works.append(asyncio.ensure_future(client.repeat_itself(brokers)))  # type: ignore[arg-type]
    for _ in range(random.randrange(1, 6)):
        for _ in range(random.randrange(200)):
            await asyncio.sleep(0)
            dead = [work for work in works if work.done()]
            assert not dead, [work.exception() for work in dead]
        brokers.elect()
    for work in works:
        work.cancel()
    await asyncio.gather(*works, return_exceptions=True)
    await brokers.settle()
    await asyncio.gather(*world.under_way)
    for each in brokers.coordinators:
        await each.close()

    for at, partition in world.data.items():
        assert not partition.open_transactions(), f"a transaction hangs in {at}"
    check_what_was_told(world, clients, is_settled=True)


@pytest.mark.simulation
@pytest.mark.parametrize("fails", [0.0, 0.1], ids=["answers that come", "answers that get lost"])
@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 2**32))
def test_no_move_of_a_coordinator_tears_a_transaction(fails: float, seed: int) -> None:
    asyncio.run(history(seed, fails=fails))


def is_found(seeds: int) -> bool:
    for seed in range(seeds):
        try:
            asyncio.run(history(seed, fails=0.1))
        except AssertionError:
            return True
    return False


@pytest.mark.slow
def test_histories_find_a_coordinator_that_does_not_write_markers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TransactionalId, "take_over", lambda self: None)

    assert is_found(40)


def test_histories_find_a_beginning_that_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionalId, "_is_deferred", lambda self, verdict: verdict.bumps_epoch)

    assert is_found(40)


@pytest.mark.slow
def test_histories_find_late_markers_of_a_former_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end(self: ReplicatedPartition, producer: ProducerIdentity, **marker: int) -> bool:
        return taken(self, producer, **marker | {"version": 1})  # type: ignore[arg-type]

    taken = ReplicatedPartition.end
    monkeypatch.setattr(ReplicatedPartition, "end", end)

    assert is_found(200)


@pytest.mark.slow
def test_histories_find_answers_of_a_former_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    async def confirm(self: object) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(ReplicatedStateLog, "confirm_leadership", confirm)

    assert is_found(40)
