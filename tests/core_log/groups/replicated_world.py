"""A log of several brokers for coordinators: what is committed stays, whoever coordinates."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.groups.transactions import VERSION_2, ProducerIdentity
from headwater.core_log.model.log import ProducerStamp, StoredBatch, TopicPartition
from headwater.core_log.records.batch_header import BatchHeader
from tests.core_log.groups.simulated_world import (
    Entry,
    SimulatedPartition,
    SimulatedStateLog,
    StoredBytes,
    World,
)


@dataclass
class ReplicatedPartition(SimulatedPartition):
    """A data partition whose appends are committed. Its leader fences coordinators and markers."""

    coordinator_epochs: dict[int, int] = field(default_factory=dict)

    def marker_count(self, producer_id: int) -> int:
        return sum(e.is_marker and e.producer.producer_id == producer_id for e in self.entries)

    def end(
        self, producer: ProducerIdentity, *, commit: bool, coordinator_epoch: int, version: int
    ) -> bool:
        """As a leader does with WriteTxnMarkers; returns whether it takes the marker."""
        producer_id, newest = producer.producer_id, self.newest_epoch(producer.producer_id)
        if coordinator_epoch < self.coordinator_epochs.get(producer_id, -1):
            return False
        is_of_the_next = version >= VERSION_2 and producer_id in self.open_transactions()
        if producer.epoch < newest or (is_of_the_next and producer.epoch == newest):
            return False
        self.coordinator_epochs[producer_id] = coordinator_epoch
        self.entries.append(Entry(producer, None, commit))
        return True


class ReplicatedWorld(World):
    """Everything that outlives a coordinator: the logs, and the messages that are under way."""

    def __init__(
        self, random: Random, partitions: Sequence[TopicPartition], *, fails: float
    ) -> None:
        super().__init__(random, fails=fails)
        self.replicated = {at: ReplicatedPartition() for at in partitions}
        self.data = dict(self.replicated)
        self.epoch = 0
        self.under_way: set[asyncio.Future[None]] = set()

    def elect(self) -> None:
        """Another broker leads: of what was not committed it has a part, which it will commit."""
        self.epoch += 1
        for stored in self.state.values():
            kept = self.random.randint(stored.synced, len(stored.batches))
            del stored.batches[kept:]
            stored.synced = kept
            stored.end_offset = stored.synced_end = sum(
                BatchHeader.read(batch).record_count for batch in stored.batches
            )

    def open_replicated_log(self, index: int) -> "ReplicatedStateLog":
        return ReplicatedStateLog(self, self.state.setdefault(index, StoredBytes()))

    def deliver_late(self, deliver: Callable[[], object]) -> None:
        async def later() -> None:
            for _ in range(self.random.randrange(20)):
                await self.pause()
            deliver()

        message = asyncio.ensure_future(later())
        self.under_way.add(message)
        message.add_done_callback(self.under_way.discard)


class ReplicatedStateLog:
    """An internal partition as its leader of one epoch sees it. Once another leads, it may write
    as much as it likes: nothing of that is ever committed."""

    def __init__(self, world: ReplicatedWorld, stored: StoredBytes) -> None:
        self._world, self._stored, self._epoch = world, stored, world.epoch
        self._log = SimulatedStateLog(world, stored)

    @property
    def _is_led(self) -> bool:
        return self._epoch == self._world.epoch

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: ProducerStamp | None = None,
    ) -> int:
        return self._log.append(records, producer=producer) if self._is_led else 1 << 40

    async def durable(self, end_offset: int) -> None:
        count, end = len(self._stored.batches), self._stored.end_offset
        await self._world.disk()
        if not self._is_led:
            raise LogUnavailable("another broker leads the partition")
        self._stored.synced = max(self._stored.synced, count)
        self._stored.synced_end = max(self._stored.synced_end, end)

    async def confirm_leadership(self) -> None:
        await self._world.pause()
        if not self._is_led:
            raise LogUnavailable("another broker leads the partition")

    def read(self) -> Iterator[StoredBatch]:
        return self._log.read()


class ReplicatedPartitions:
    """The data partitions, as a coordinator reaches them: requests are late, lost or come twice."""

    has_short_cuts = False

    def __init__(self, world: ReplicatedWorld) -> None:
        self._world = world

    async def sync(self, partitions: Collection[TopicPartition]) -> None:
        """All of it is committed."""

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
        left, world = [], self._world
        producer = ProducerIdentity(producer_id, producer_epoch)

        def deliver(at: TopicPartition) -> bool:
            return world.replicated[at].end(
                producer, commit=commit, coordinator_epoch=coordinator_epoch, version=version
            )

        for at in sorted(partitions):
            await world.pause()
            if version >= VERSION_2 and world.random.random() < 0.2:
                world.deliver_late(lambda at=at: deliver(at))  # type: ignore[misc]
            is_written = deliver(at)
            await world.pause()
            if not is_written or world.random.random() < world.fails:
                left.append(at)
        return left
