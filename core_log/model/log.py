"""The Log contract: partitioned, ordered, durable. `EmbeddedLog` and `KafkaLog` fulfil it."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.records.batch_header import Batch


class TopicPartition(NamedTuple):
    topic: str
    partition: int


Offsets = Mapping[TopicPartition, int]
"""The next offset to read, per partition."""


class Isolation(Enum):
    UNCOMMITTED = 0
    COMMITTED = 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a partition reaches; the last two are -1 where the log cannot tell."""

    start: int  # oldest offset still held
    stable: int  # everything below is on disk and decided: committed or aborted
    end: int  # the next offset to be written, open transactions included
    cleaned_to: int  # compaction may have removed older values below this
    deletes_dropped_to: int  # and tombstones below this


@dataclass(frozen=True, slots=True)
class RetainedRange:
    """What retention and compaction have left of a partition, as in `Bounds`."""

    start: int
    cleaned_to: int
    deletes_dropped_to: int


@dataclass(frozen=True, slots=True)
class FetchLimit:
    """How much to wait for and how much to take."""

    bytes_max: int = 8 << 20
    bytes_min: int = 1
    wait_ms_max: int = 500


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole record batches of one partition, byte for byte as stored.

    Under Isolation.COMMITTED, aborted batches and transaction markers are left out. The first
    batch may begin before the offset asked for; `next_offset` is where to read on.
    """

    partition: TopicPartition
    data: memoryview
    next_offset: int


class Transaction(Protocol):
    """Appends and offset commits that become visible together or not at all."""

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        """Returns the base offset."""
        ...

    async def append_each(
        self, batches: Mapping[TopicPartition, Batch]
    ) -> Mapping[TopicPartition, int]:
        """The same for several partitions, together: one way to the log and back."""
        ...

    async def commit_offsets(self, group: str, offsets: Offsets) -> None: ...


class Writer(Protocol):
    """A named, idempotent appender. Opening a newer writer of the same name fences this one."""

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        """Appends outside any transaction; returns the base offset once the batch is on disk."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Commits when the block ends, aborts when it raises."""
        ...


class Log(Protocol):
    """What pipelines, sources and sinks know of the log."""

    async def ensure_topic(self, *topics: TopicSettings) -> None:
        """Several are made together, which takes hardly longer than one."""
        ...

    async def partition_count(self, topic: str) -> int: ...
    async def topic_id(self, topic: str) -> str:
        """Tells a topic from another one of the same name that was there before."""
        ...

    async def writer(self, name: str) -> Writer: ...
    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        """Appends without identity: at least once. Returns the base offset, on disk."""
        ...

    async def fetch(
        self, wanted: Offsets, *, limit: FetchLimit, isolation: Isolation
    ) -> Sequence[Fetched]: ...
    async def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Bounds]: ...
    async def retained_ranges(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, RetainedRange]:
        """Asks for no end, which would wait for the disk."""
        ...

    async def offsets_at(
        self, partitions: Iterable[TopicPartition], *, timestamp_ms: int
    ) -> Offsets:
        """Per partition the first offset appended at or after that time, else its end."""
        ...

    async def commit_offsets(self, group: str, offsets: Offsets) -> None: ...
    async def committed_offsets(self, group: str) -> Offsets: ...
    async def close(self) -> None: ...
