"""A transaction coordinator over one partition of state and two of data, and what it did there."""

import asyncio
from collections.abc import Collection
from random import Random

from headwater.core_log.foundation.errors import StorageFailed
from headwater.core_log.groups.transaction_coordinator import (
    TransactionCoordinator,
    TransactionLimits,
)
from headwater.core_log.groups.transactions import VERSION_2, ProducerIdentity
from headwater.core_log.model.log import CoordinatorLog, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.core_log.groups.simulated_world import (
    SimulatedPartition,
    SimulatedPartitions,
    SimulatedStateLog,
    StoredBytes,
    World,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 60_000
LIMITS = TransactionLimits(save_after_ms=1_000, retry_ms=100)


class WatchedLog(SimulatedStateLog):
    """Writes down each disk round, and fails or waits when told to."""

    def __init__(self, world: World, stored: StoredBytes, events: list[str]) -> None:
        super().__init__(world, stored)
        self.events, self.fails_now = events, False
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def durable(self, end_offset: int) -> None:
        await self.is_free.wait()
        if self.fails_now:
            raise StorageFailed("the disk refuses")
        self.events.append("decision on disk")
        await super().durable(end_offset)


class WatchedPartitions(SimulatedPartitions):
    """Writes down each disk round and each marker, and refuses those it is told to."""

    def __init__(self, world: World, events: list[str]) -> None:
        super().__init__(world)
        self.world, self.events = world, events
        self.fails_now = False
        self.refused: set[TopicPartition] = set()

    async def sync(self, partitions: Collection[TopicPartition]) -> None:
        if self.fails_now:
            raise StorageFailed("the disk refuses")
        self.events.append(f"sync {[each.partition for each in sorted(partitions)]}")
        await super().sync(partitions)

    async def write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        version: int,
        partitions: Collection[TopicPartition],
    ) -> Collection[TopicPartition]:
        self.events.append("commit" if commit else "abort")
        left = set(partitions) & self.refused
        await super().write_markers(
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            version=version,
            partitions=set(partitions) - left,
        )
        return left


class Broker:
    """A coordinator over one partition of state and two of data."""

    def __init__(self) -> None:
        self.world = World(Random(3))
        self.world.data = {T0: SimulatedPartition(), T1: SimulatedPartition()}
        self.events: list[str] = []
        self.stored = StoredBytes()

    async def start(self, *, was_clean: bool = True) -> None:
        self.log = WatchedLog(self.world, self.stored, self.events)
        self.partitions = WatchedPartitions(self.world, self.events)
        self.coordinator = TransactionCoordinator(
            partition_count=lambda: 1,
            open_state_log=self.open_log,
            partitions=self.partitions,
            allocate_producer_ids=self.world.allocate_producer_ids,
            clock=self.world,
            limits=LIMITS,
        )
        self.coordinator.load(0)
        await self.coordinator.recover(self.world.open_transactions(), was_clean=was_clean)
        self.events.clear()

    def open_log(self, index: int) -> CoordinatorLog:
        return self.log

    async def begin(self, producer: ProducerIdentity | None = None) -> ProducerIdentity:
        """A transaction with a batch in each partition."""
        if producer is None:
            answer = await self.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)
            producer = answer.producer
        verdicts = await self.coordinator.verify_or_add("id", *producer, [T0, T1], may_add=True)
        assert set(verdicts.values()) == {ErrorCode.NONE}
        for at in (T0, T1):
            self.world.data[at].append(producer, f"{producer} in {at}")
        self.events.clear()
        return producer

    async def end(
        self, producer: ProducerIdentity, *, commit: bool = True, version: int = VERSION_2
    ) -> tuple[ErrorCode, ProducerIdentity]:
        return await self.coordinator.end("id", producer, commit=commit, version=version)

    async def later(self, ms: int) -> None:
        self.world.now_ms_value += ms
        await self.coordinator.tick(self.world.now_ms())

    def read(self) -> list[str]:
        return [batch for partition in self.world.data.values() for batch in partition.committed()]
