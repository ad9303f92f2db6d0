"""The contracts of the log: `Log` for pipelines, which `EmbeddedLog` and `KafkaLog` implement, and
`StateLog` for coordinators."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.records.batch_header import Batch, BatchHeader


class TopicPartition(NamedTuple):
    topic: str
    partition: int


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the numbers of the partitions, as messages of Kafka group them."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


Offsets = Mapping[TopicPartition, int]
"""The next offset to read, per partition."""


class Isolation(Enum):
    UNCOMMITTED = 0
    COMMITTED = 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of a partition; the last two are -1 if the log does not know them."""

    start: int  # oldest offset still held
    stable: int  # everything below is on disk, and committed or aborted
    end: int  # the next offset to be written, after open transactions
    cleaned_to: int  # compaction may have removed older values below this
    deletes_dropped_to: int  # and tombstones below this


@dataclass(frozen=True, slots=True)
class RetainedRange:
    """The offsets of a partition after retention and compaction, as in `Bounds`."""

    start: int
    cleaned_to: int
    deletes_dropped_to: int
    leader_epoch: int = field(default=-1, compare=False)
    """That of the newest records, or a later one; -1 if the log does not say."""


@dataclass(frozen=True, slots=True)
class FetchLimit:
    """How long to wait for records, and how many bytes to read."""

    bytes_max: int = 8 << 20
    bytes_min: int = 1
    wait_ms_max: int = 500


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole record batches of one partition, byte for byte as stored.

    Isolation.COMMITTED leaves out aborted batches and transaction markers. The first batch may
    begin before the requested offset; `next_offset` is the offset to continue at.
    """

    partition: TopicPartition
    data: memoryview
    next_offset: int


class Transaction(Protocol):
    """Appends and offset commits that become visible together or not at all."""

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        """Appends batches and returns the base offset."""
        ...

    async def append_each(
        self, batches: Mapping[TopicPartition, Batch]
    ) -> Mapping[TopicPartition, int]:
        """Appends to several partitions in one round trip."""
        ...

    async def commit_offsets(self, group: str, offsets: Offsets) -> None: ...


class Writer(Protocol):
    """A named, idempotent producer. Opening a newer writer with the same name fences this one."""

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        """Appends outside any transaction; returns the base offset once the batch is on disk."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Context manager: commits when the block ends, aborts when it raises."""
        ...


class Log(Protocol):
    """The operations of the log that pipelines, sources and sinks use."""

    async def ensure_topic(self, *topics: TopicSettings) -> None:
        """Creates or checks topics; several take hardly longer than one."""
        ...

    async def partition_count(self, topic: str) -> int: ...
    async def topic_id(self, topic: str) -> str:
        """Returns an id that differs from that of an earlier topic with the same name."""
        ...

    async def writer(self, name: str) -> Writer: ...
    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        """Appends without a producer id (at least once); returns the base offset when it is on
        disk."""
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
        """Returns the retained offsets; it does not ask for the end, which would wait for the
        disk."""
        ...

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Returns per partition the end of the records of that leader epoch or earlier ones; -1 if
        every epoch of the log is earlier."""
        ...

    async def offsets_at(
        self, partitions: Iterable[TopicPartition], *, timestamp_ms: int
    ) -> Offsets:
        """Returns per partition the first offset appended at or after that time, or its end."""
        ...

    async def commit_offsets(self, group: str, offsets: Offsets) -> None: ...
    async def committed_offsets(self, group: str) -> Offsets: ...
    async def close(self) -> None: ...


class ProducerStamp(NamedTuple):
    """The producer whose open transaction the appended records belong to."""

    producer_id: int
    producer_epoch: int


class StoredRecord(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch that was read back; the records of a control batch are its markers."""

    header: BatchHeader
    records: Sequence[StoredRecord]


class StateLog(Protocol):
    """An append-only log with one owner, which reads it back in order after a restart."""

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: ProducerStamp | None = None,
    ) -> int:
        """Writes one batch, not yet synced; returns the end offset after it."""
        ...

    async def durable(self, end_offset: int) -> None:
        """Returns when everything below `end_offset` is on disk on all required replicas."""
        ...

    def read(self) -> Iterator[StoredBatch]:
        """Returns everything that is still kept, from the start of the log to its end."""
        ...


class CoordinatorLog(StateLog, Protocol):
    """The log of a coordinator, which moves with the leader of its partition."""

    async def confirm_leadership(self) -> None:
        """Returns when it is sure that no other leader had taken over before this was called. An
        answer for which nothing is written waits for it."""
        ...


GENERATION = re.compile(r"\.g([1-9]\d*)$")
"""The end of the name of a later generation of a table's topic: `orders`, `orders.g2`."""


def generation_number(topic: str) -> int:
    """Returns the number of a generation; 1 for the first one, whose name has no suffix."""
    found = GENERATION.search(topic)
    return int(found[1]) if found else 1


def first_generation(topic: str) -> str:
    return GENERATION.sub("", topic)


def generation_name(first: str, number: int) -> str:
    return f"{first}.g{number}"


def is_later_generation(topic: str, *, than: str) -> bool:
    """Returns whether both are topics of one table and the other one is an earlier generation."""
    return first_generation(topic) == first_generation(than) and generation_number(
        topic
    ) > generation_number(than)


def are_later_generations(topics: Collection[str], *, former: Collection[str]) -> bool:
    """Returns whether there are other topics and all are earlier generations of one of these."""
    others = set(former) - set(topics)
    return bool(others) and all(
        any(is_later_generation(topic, than=each) for topic in topics) for each in others
    )
