"""A Log in memory that crashes on demand: transactions, fencing and offsets as the real one has."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from headwater.core_log.foundation.errors import Fenced, LogRejected, PositionLost
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import (
    Bounds,
    Fetched,
    FetchLimit,
    Isolation,
    Offsets,
    RetainedRange,
    TopicPartition,
)
from headwater.core_log.records.batch_header import Batch, seal, stamp


class Crash(Exception):
    """The process is gone, before or after the effect of its last operation."""


class Fuse:
    """Counts operations of a seam and crashes at the chosen one, before or after its effect."""

    def __init__(self, at: int = 0, *, after: bool = False) -> None:
        self.at, self.after, self.count = at, after, 0

    def before(self) -> None:
        self.count += 1
        if self.count == self.at and not self.after:
            raise Crash

    def done(self) -> None:
        if self.count == self.at and self.after:
            raise Crash


@dataclass(slots=True)
class Entry:
    """A batch or a marker; what is undecided hides everything behind it."""

    first: int
    end: int
    data: bytes
    transaction: "MemoryTransaction | None" = None


@dataclass(slots=True)
class Partition:
    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    cleaned_to: int = 0
    deletes_dropped_to: int = 0

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.start

    @property
    def stable(self) -> int:
        for entry in self.entries:
            if entry.transaction is not None and entry.transaction.outcome is None:
                return entry.first
        return self.end


class MemoryLog:
    """Everything survives a Crash; an open transaction does until its writer comes back."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Partition] = defaultdict(Partition)
        self.topics: dict[str, tuple[TopicSettings, str]] = {}
        self.groups: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self.writers: dict[str, MemoryWriter] = {}
        self.fuse = Fuse()

    async def ensure_topic(self, *topics: TopicSettings) -> None:
        for topic in topics:
            self.fuse.before()
            self.topics.setdefault(topic.name, (topic, str(uuid4())))
            self.fuse.done()

    async def partition_count(self, topic: str) -> int:
        return self._known(topic)[0].partitions

    async def topic_id(self, topic: str) -> str:
        return self._known(topic)[1]

    async def writer(self, name: str) -> "MemoryWriter":
        self.fuse.before()
        old = self.writers.get(name)
        if old is not None and old.transaction_open is not None:
            old.transaction_open.decide(self, is_committed=False)
        writer = self.writers[name] = MemoryWriter(self, name)
        self.fuse.done()
        return writer

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        self.fuse.before()
        first = self.write(partition, batch, None)
        self.fuse.done()
        return first

    async def fetch(
        self, wanted: Offsets, *, limit: FetchLimit, isolation: Isolation
    ) -> Sequence[Fetched]:
        found = []
        for place, offset in wanted.items():
            partition, bytes_left = self.partitions[place], limit.bytes_max
            if offset < partition.start:
                raise PositionLost("the log no longer has that offset", topic=place.topic)
            taken: list[bytes] = []
            next_offset = offset
            for entry in partition.entries:
                if entry.end <= offset:
                    continue
                is_hidden = entry.first >= partition.stable and isolation is Isolation.COMMITTED
                if is_hidden or (taken and bytes_left <= 0):
                    break
                next_offset = entry.end
                if entry.data and not (entry.transaction and entry.transaction.outcome is False):
                    taken.append(entry.data)
                    bytes_left -= len(entry.data)
            if next_offset > offset:
                found.append(Fetched(place, memoryview(b"".join(taken)), next_offset))
        await asyncio.sleep(0)
        return found

    async def bounds(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        return {place: self._bounds(self.partitions[place]) for place in partitions}

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Every record is of one epoch."""
        return {place: self.partitions[place].end for place in epochs}

    async def retained_ranges(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, RetainedRange]:
        return {
            place: RetainedRange(each.start, each.cleaned_to, each.deletes_dropped_to)
            for place, each in (await self.bounds(partitions)).items()
        }

    async def offsets_at(
        self, partitions: Iterable[TopicPartition], *, timestamp_ms: int
    ) -> Offsets:
        raise NotImplementedError

    async def commit_offsets(self, group: str, offsets: Offsets) -> None:
        self.fuse.before()
        self.groups[group].update(offsets)
        self.fuse.done()

    async def committed_offsets(self, group: str) -> Offsets:
        return dict(self.groups[group])

    async def close(self) -> None:
        pass

    def delete_topic(self, topic: str) -> None:
        del self.topics[topic]
        for place in [each for each in self.partitions if each.topic == topic]:
            del self.partitions[place]

    def write(
        self, place: TopicPartition, batch: Batch, transaction: "MemoryTransaction | None"
    ) -> int:
        self._known(place.topic)
        partition = self.partitions[place]
        first = partition.end
        stamp(batch.data, base_offset=first, leader_epoch=0)
        seal(batch.data)
        end = first + batch.record_count
        partition.entries.append(Entry(first, end, bytes(batch.data), transaction))
        return first

    def _known(self, topic: str) -> tuple[TopicSettings, str]:
        if topic not in self.topics:
            raise LogRejected("there is no such topic", topic=topic)
        return self.topics[topic]

    def _bounds(self, partition: Partition) -> Bounds:
        return Bounds(
            start=partition.start,
            stable=partition.stable,
            end=partition.end,
            cleaned_to=partition.cleaned_to,
            deletes_dropped_to=partition.deletes_dropped_to,
        )


class MemoryWriter:
    def __init__(self, log: MemoryLog, name: str) -> None:
        self.log, self.name = log, name
        self.transaction_open: MemoryTransaction | None = None

    def check(self) -> None:
        if self.log.writers[self.name] is not self:
            raise Fenced("a newer writer has taken over", writer=self.name)

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        async with self.transaction() as transaction:
            return await transaction.append(partition, batch)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["MemoryTransaction"]:
        self.check()
        transaction = self.transaction_open = MemoryTransaction(self)
        try:
            yield transaction
        except Crash:
            raise
        except BaseException:
            transaction.decide(self.log, is_committed=False)
            raise
        self.log.fuse.before()
        self.check()
        transaction.decide(self.log, is_committed=True)
        self.transaction_open = None
        self.log.fuse.done()


class MemoryTransaction:
    def __init__(self, writer: MemoryWriter) -> None:
        self.writer = writer
        self.outcome: bool | None = None
        self.places: set[TopicPartition] = set()

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        self.writer.log.fuse.before()
        self.writer.check()
        self.places.add(partition)
        first = self.writer.log.write(partition, batch, self)
        self.writer.log.fuse.done()
        return first

    async def append_each(
        self, batches: Mapping[TopicPartition, Batch]
    ) -> Mapping[TopicPartition, int]:
        return {
            partition: await self.append(partition, batch) for partition, batch in batches.items()
        }

    async def commit_offsets(self, group: str, offsets: Offsets) -> None:
        raise NotImplementedError

    def decide(self, log: MemoryLog, *, is_committed: bool) -> None:
        """The markers take an offset each, as everywhere."""
        if self.outcome is None:
            self.outcome = is_committed
            for place in self.places:
                end = log.partitions[place].end
                log.partitions[place].entries.append(Entry(end, end + 1, b""))
