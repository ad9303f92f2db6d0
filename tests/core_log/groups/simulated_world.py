"""A disk and partitions for coordinators: what is not synced may be lost at any await."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from headwater.core_log.foundation.errors import InvalidProducerEpoch, StorageFailed
from headwater.core_log.groups.transactions import ProducerIdentity
from headwater.core_log.model.log import ProducerStamp, StoredBatch, StoredRecord, TopicPartition
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, decode_batch, encode_batch


class Entry(NamedTuple):
    """A batch of a producer in a data partition, or the marker that ends its transaction."""

    producer: ProducerIdentity
    batch: str | None
    commit: bool = False

    @property
    def is_marker(self) -> bool:
        return self.batch is None


@dataclass
class SimulatedPartition:
    """One data partition: what was appended, and how much of it the disk holds."""

    entries: list[Entry] = field(default_factory=list)
    synced: int = 0
    openings: int = 0
    is_offline: bool = False

    def reopen(self, random: Random) -> bool:
        """Its disk failed: what was not synced may be gone, and whoever waits for it is told.
        Returns whether all is there."""
        self.openings += 1
        end = len(self.entries)
        del self.entries[random.choice([end, random.randint(self.synced, end)]) :]
        self.synced = len(self.entries)
        return self.synced == end

    def open_transactions(self) -> dict[int, ProducerIdentity]:
        opened: dict[int, ProducerIdentity] = {}
        for entry in self.entries:
            if entry.is_marker:
                opened.pop(entry.producer.producer_id, None)
            else:
                opened[entry.producer.producer_id] = entry.producer
        return opened

    def append(self, producer: ProducerIdentity, batch: str) -> None:
        """As a leader does: an older epoch than the newest seen is fenced."""
        if self.is_offline:
            raise StorageFailed("the partition is offline")
        newest = self.newest_epoch(producer.producer_id)
        if producer.epoch < newest:
            raise InvalidProducerEpoch("a newer run has written", epoch=producer.epoch)
        self.entries.append(Entry(producer, batch))

    def newest_epoch(self, producer_id: int) -> int:
        epochs = [e.producer.epoch for e in self.entries if e.producer.producer_id == producer_id]
        return max(epochs, default=-1)

    def committed(self) -> list[str]:
        """What a reader of committed data sees below the first open transaction."""
        opened = self.open_transactions()
        seen: list[str] = []
        for place, entry in enumerate(self.entries):
            if entry.batch is None:
                continue
            marker = next(
                (
                    later
                    for later in self.entries[place:]
                    if later.is_marker and later.producer.producer_id == entry.producer.producer_id
                ),
                None,
            )
            if marker is None:
                assert entry.producer.producer_id in opened, "no marker means open"
                return seen
            if marker.commit:
                seen.append(entry.batch)
        return seen


@dataclass
class StoredBytes:
    """The batches of one internal partition."""

    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    synced: int = 0
    synced_end: int = 0


class World:
    """Everything that outlives a broker's process, and the scheduling of one run of it."""

    def __init__(
        self, random: Random, *, fails: float = 0.0, steps_ms: Sequence[int] = (1,)
    ) -> None:
        self.random, self.fails, self.steps_ms = random, fails, steps_ms
        self.data: dict[TopicPartition, SimulatedPartition] = {}
        self.state: dict[int, StoredBytes] = {}
        self.next_producer_id = 1
        self.now_ms_value = 1_000_000
        self.set_back_ms = 0
        """By how much the clock of the system was set back."""
        self.run = 0

    def now_ms(self) -> int:
        return self.now_ms_value - self.set_back_ms

    def monotonic_ms(self) -> int:
        return self.now_ms_value - 999_000

    async def pause(self) -> None:
        """Somewhere in here the others run, or the power goes."""
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(0)

    async def disk(self) -> None:
        await self.pause()
        if self.random.random() < self.fails:
            raise StorageFailed("the disk refuses")

    async def allocate_producer_ids(self) -> range:
        await self.pause()
        first, self.next_producer_id = self.next_producer_id, self.next_producer_id + 2
        return range(first, self.next_producer_id)

    def crash(self, *, loses_power: bool) -> None:
        """Every file keeps what was synced, and of the rest a beginning of its own."""
        self.run += 1
        for partition in self.data.values():
            partition.is_offline = False
            end = len(partition.entries)
            kept = self.random.randint(partition.synced, end) if loses_power else end
            del partition.entries[kept:]
            partition.synced = kept
        for stored in self.state.values():
            end = len(stored.batches)
            kept = self.random.randint(stored.synced, end) if loses_power else end
            del stored.batches[kept:]
            stored.synced = kept
            stored.end_offset = stored.synced_end = sum(
                BatchHeader.read(batch).record_count for batch in stored.batches
            )

    def open_transactions(self) -> dict[TopicPartition, list[ProducerIdentity]]:
        return {at: list(each.open_transactions().values()) for at, each in self.data.items()}

    def open_state_log(self, index: int) -> "SimulatedStateLog":
        return SimulatedStateLog(self, self.state.setdefault(index, StoredBytes()))


class SimulatedStateLog:
    """One internal partition, as long as this run of the broker lasts."""

    def __init__(self, world: World, stored: StoredBytes) -> None:
        self._world, self._stored, self._run = world, stored, world.run

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: ProducerStamp | None = None,
    ) -> int:
        assert self._run == self._world.run, "the dead do not write"
        plain = [PlainRecord(key, value, timestamp_ms=0) for key, value in records]
        stamp = {} if producer is None else producer._asdict() | {"is_transactional": True}
        batch = encode_batch(plain, base_offset=self._stored.end_offset, **stamp)
        self._stored.batches.append(bytes(batch))
        self._stored.end_offset += len(records)
        return self._stored.end_offset

    def append_marker(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        key = b"\0\0" + commit.to_bytes(2, "big")
        batch = encode_batch(
            [PlainRecord(key, bytes(6), timestamp_ms=0)],
            base_offset=self._stored.end_offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=True,
            is_control=True,
        )
        self._stored.batches.append(bytes(batch))
        self._stored.end_offset += 1

    async def durable(self, end_offset: int) -> None:
        if self._stored.synced_end >= end_offset:
            return
        count, end = len(self._stored.batches), self._stored.end_offset
        await self._world.disk()
        self._stored.synced = max(self._stored.synced, count)
        self._stored.synced_end = max(self._stored.synced_end, end)
        assert self._stored.synced_end >= end_offset, "a sync covers what was written before it"

    async def confirm_leadership(self) -> None:
        """There is one broker."""

    def read(self) -> Iterator[StoredBatch]:
        for data in self._stored.batches:
            header, records = decode_batch(data)
            yield StoredBatch(
                header, [StoredRecord(each.offset, each.key, each.value) for each in records]
            )


class SimulatedPartitions:
    """The data partitions, as the transaction coordinator of this run reaches them."""

    has_short_cuts = True

    def __init__(self, world: World) -> None:
        self._world, self._run = world, world.run

    async def sync(self, partitions: Collection[TopicPartition]) -> None:
        counts = {at: len(self._world.data[at].entries) for at in partitions}
        openings = {at: self._world.data[at].openings for at in partitions}
        if any(self._world.data[at].synced < count for at, count in counts.items()):
            await self._world.disk()
        for at, count in counts.items():
            if self._world.data[at].openings != openings[at]:
                raise StorageFailed("the partition was offline meanwhile")
            self._world.data[at].synced = max(self._world.data[at].synced, count)

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
        left = []
        for at in sorted(partitions):
            await self._world.pause()
            assert self._run == self._world.run, "the dead do not write"
            if self._world.random.random() < self._world.fails:
                left.append(at)
                continue
            marker = Entry(ProducerIdentity(producer_id, producer_epoch), None, commit)
            self._world.data[at].entries.append(marker)
        return left
