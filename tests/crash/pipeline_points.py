"""The named moments at which a running pipeline is killed: calls of its seams, by their number."""

import os
import signal
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headwater.connectors.source import Control, Source
from headwater.core_log.foundation.errors import Diagnostic
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import ChangeBatch, Positions
from headwater.core_log.model.log import (
    Bounds,
    Fetched,
    FetchLimit,
    Isolation,
    Log,
    Offsets,
    RetainedRange,
    TopicPartition,
    Transaction,
    Writer,
)
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.storage.files import Bytes, File, Files
from headwater.pipelines.journal.internal_topics import COMMITS, POSITIONS, SCHEMAS
from headwater.sinks.sink import AppliedOffsets, Sink, Slice


class Point(NamedTuple):
    """The process dies at the `number`-th call of `seam`: before its effect, or right after it."""

    seam: str
    number: int
    is_after: bool

    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} {self.seam} {self.number}"


POINTS = (
    Point("topic created", 3, False),
    Point("writer opened", 1, True),
    Point("stands read", 2, False),
    Point("batch read", 2, False),
    Point("batch read", 7, False),
    Point("schema appended", 1, True),
    Point("schema appended", 3, True),
    Point("data appended", 1, False),
    Point("data appended", 9, True),
    Point("position appended", 2, False),
    Point("position appended", 4, True),
    Point("boundary appended", 3, True),
    Point("commit", 1, False),
    Point("commit", 3, True),
    Point("commit", 5, False),
    Point("acknowledge", 2, False),
    Point("acknowledge", 4, True),
    Point("stands read", 1, True),
    Point("read", 2, False),
    Point("apply", 1, False),
    Point("apply", 1, True),
    Point("apply", 3, True),
    Point("target statement", 5, False),
    Point("target statement", 23, True),
    Point("target commit", 2, False),
    Point("group offsets", 2, False),
    Point("log write", 120, True),
    Point("log sync", 12, False),
    Point("log sync", 20, True),
)


class Fuse:
    """Counts the calls of every seam, and kills the process at its point."""

    def __init__(self, point: Point | None) -> None:
        self.point = point
        self.counts: dict[str, int] = {}

    def before(self, seam: str) -> int:
        """Which call this is."""
        number = self.counts[seam] = self.counts.get(seam, 0) + 1
        if self.point == (seam, number, False):
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    def after(self, seam: str, number: int | None = None) -> None:
        """By default the newest call that has begun."""
        if self.point == (seam, number or self.counts[seam], True):
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def around(self, seam: str) -> Iterator[None]:
        """Calls may run side by side, and end in another order than they began."""
        number = self.before(seam)
        yield
        self.after(seam, number)


def seam_of_append(partition: TopicPartition) -> str:
    names = {POSITIONS: "position", COMMITS: "boundary", SCHEMAS: "schema"}
    return f"{names.get(partition.topic, 'data')} appended"


@dataclass(slots=True)
class KillingLog:
    """The log as it is, with a fuse at everything the two loops ask of it."""

    log: Log
    fuse: Fuse

    async def ensure_topic(self, *topics: TopicSettings) -> None:
        for topic in topics:
            with self.fuse.around("topic created"):
                await self.log.ensure_topic(topic)

    async def partition_count(self, topic: str) -> int:
        return await self.log.partition_count(topic)

    async def topic_id(self, topic: str) -> str:
        return await self.log.topic_id(topic)

    async def writer(self, name: str) -> Writer:
        with self.fuse.around("writer opened"):
            writer = await self.log.writer(name)
        return KillingWriter(writer, self.fuse)

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        return await self.log.append(partition, batch)

    async def fetch(
        self, wanted: Offsets, *, limit: FetchLimit, isolation: Isolation
    ) -> Sequence[Fetched]:
        with self.fuse.around("read"):
            found = await self.log.fetch(wanted, limit=limit, isolation=isolation)
        return found

    async def bounds(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        return await self.log.bounds(partitions)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        return await self.log.epoch_ends(epochs)

    async def retained_ranges(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, RetainedRange]:
        return await self.log.retained_ranges(partitions)

    async def offsets_at(
        self, partitions: Iterable[TopicPartition], *, timestamp_ms: int
    ) -> Offsets:
        return await self.log.offsets_at(partitions, timestamp_ms=timestamp_ms)

    async def commit_offsets(self, group: str, offsets: Offsets) -> None:
        with self.fuse.around("group offsets"):
            await self.log.commit_offsets(group, offsets)

    async def committed_offsets(self, group: str) -> Offsets:
        return await self.log.committed_offsets(group)

    async def close(self) -> None:
        await self.log.close()


@dataclass(slots=True)
class KillingWriter:
    writer: Writer
    fuse: Fuse

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        return await self.writer.append(partition, batch)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        async with self.writer.transaction() as transaction:
            yield KillingTransaction(transaction, self.fuse)
            self.fuse.before("commit")
        self.fuse.after("commit")


@dataclass(slots=True)
class KillingTransaction:
    transaction: Transaction
    fuse: Fuse

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        seam = seam_of_append(partition)
        with self.fuse.around(seam):
            offset = await self.transaction.append(partition, batch)
        return offset

    async def append_each(
        self, batches: Mapping[TopicPartition, Batch]
    ) -> Mapping[TopicPartition, int]:
        """One by one, so that it can be killed between any two of them."""
        return {
            partition: await self.append(partition, batch) for partition, batch in batches.items()
        }

    async def commit_offsets(self, group: str, offsets: Offsets) -> None:
        await self.transaction.commit_offsets(group, offsets)


@dataclass(slots=True)
class KillingSource:
    source: Source
    fuse: Fuse

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        async for batch in self.source.changes(resume_from):
            self.fuse.before("batch read")
            yield batch

    async def acknowledge(self, positions: Positions) -> None:
        with self.fuse.around("acknowledge"):
            await self.source.acknowledge(positions)

    async def control(self, control: Control) -> None:
        await self.source.control(control)

    async def discover(self) -> Sequence[TableSchema]:
        return await self.source.discover()

    async def examine(self) -> Sequence[Diagnostic]:
        return await self.source.examine()

    async def drop(self) -> Sequence[str]:
        return await self.source.drop()


@dataclass(slots=True)
class KillingSink:
    sink: Sink
    fuse: Fuse

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        with self.fuse.around("stands read"):
            offsets = await self.sink.committed_offsets(topics)
        return offsets

    async def apply(self, part: Slice) -> None:
        with self.fuse.around("apply"):
            await self.sink.apply(part)

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        return await self.sink.plan(schemas)

    async def examine(self) -> Sequence[Diagnostic]:
        return await self.sink.examine()

    async def drop(self) -> Sequence[str]:
        return await self.sink.drop()

    async def close(self) -> None:
        await self.sink.close()


class KillingFiles:
    """The broker's own disk."""

    def __init__(self, files: Files, fuse: Fuse) -> None:
        self._files, self._fuse = files, fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: Path, *, create: bool = False) -> File:
        return KillingFile(self._files.open(path, create=create), self._fuse)


class KillingFile:
    def __init__(self, file: File, fuse: Fuse) -> None:
        self._file, self._fuse = file, fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, position: int, data: Bytes) -> int:
        with self._fuse.around("log write"):
            taken = self._file.write(position, data)
        return taken

    def sync(self) -> None:
        with self._fuse.around("log sync"):
            self._file.sync()


def watch_sql(fuse: Fuse) -> None:
    """Every statement and commit that reaches a database through SQLAlchemy."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    event.listen(Engine, "before_cursor_execute", lambda *_: fuse.before("target statement"))
    event.listen(Engine, "after_cursor_execute", lambda *_: fuse.after("target statement"))
    event.listen(Engine, "commit", lambda _: fuse.before("target commit"))
