"""A table of the lake, whatever its format: what it is at one version, and one change of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.held_columns import HeldColumns
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, ConsistentCut
from headwater.sinks.spark.key_ranges import DataFile
from headwater.sinks.spark.settings import Mode


class Overtaken(Exception):
    """Somebody else has committed to the table since it was looked at."""


class TableOwner(NamedTuple):
    """Whose a table is: stored in it, and checked before it is written."""

    pipeline: str
    sink: str
    namespace: str
    table: str
    """Which table of the source it is."""


@dataclass(frozen=True, slots=True)
class TopicFeed:
    """A topic whose changes went into a table."""

    topic_id: str
    partitions: int


def merge_feeds(
    held: Mapping[str, TopicFeed], more: Mapping[str, TopicFeed]
) -> dict[str, TopicFeed]:
    """A slice need not touch all partitions of a topic."""
    found = dict(held)
    for topic, feed in more.items():
        before = held.get(topic)
        is_same = before is not None and before.topic_id == feed.topic_id
        count = max(feed.partitions, before.partitions) if before and is_same else feed.partitions
        found[topic] = TopicFeed(feed.topic_id, count)
    return found


@dataclass(frozen=True, slots=True)
class LakeTableState:
    """A table at one version of its own. What it holds of the log stands in it, in the same commit
    as the rows."""

    version: int
    """Delta: of its log; Iceberg: counted in a property."""
    id: str
    """Another one when the table was made anew."""
    schema: pa.Schema
    files: tuple[DataFile, ...]
    stands: AppliedOffsets
    generation: int
    mode: Mode
    key: str
    """First column of the key by which rows are told apart; empty where none is."""
    owner: TableOwner | None
    """None where no pipeline made it."""
    feeds: Mapping[str, TopicFeed] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    columns: HeldColumns = field(default_factory=HeldColumns)
    """Which of the source's columns are the table's."""
    is_put_back: bool = False
    """By somebody who could not say where the table stood then: `stands` are not of its rows."""
    native: Any = field(default=None, repr=False, compare=False)
    """The format's own handle on this version."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit: all of it becomes visible, or nothing."""

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    stands: AppliedOffsets = field(default_factory=dict)
    feeds: Mapping[str, TopicFeed] = field(default_factory=dict)
    cut: ConsistentCut | None = None
    committed_ms: int = 0
    schema: pa.Schema | None = None
    """The new columns, where they change."""
    columns: HeldColumns | None = None
    """The same with the ids of the source's, where that changes."""
    becomes: "TableCreation | None" = None
    """What a rebuilt copy was made as; the table is that from now on."""
    operation: str = "MERGE"
    keeps_rows: bool = False
    """The rows stay what they are, they only lie in other files."""


@dataclass(frozen=True, slots=True)
class TableCreation:
    """What a table begins with."""

    id: str
    schema: pa.Schema
    mode: Mode
    key: str
    owner: TableOwner
    partition_by: tuple[str, ...] = ()
    generation: int = 1
    columns: HeldColumns = field(default_factory=HeldColumns)


class LakeTable(Protocol):
    """One table of a lake by its place. Every method may be called from any thread."""

    def load(self) -> LakeTableState | None:
        """None when there is no table."""
        ...

    def create(self, creation: TableCreation, change: TableCommit) -> LakeTableState:
        """Makes the table with its first rows; raises `Overtaken` when there is one."""
        ...

    def commit(self, state: LakeTableState, change: TableCommit) -> LakeTableState:
        """Goes on from `state`; raises `Overtaken` when the table is no longer that."""
        ...

    def versions(self, count: int) -> Sequence["Version"]:
        """The newest versions, newest first, that say where they stood."""
        ...

    def at(self, version: int) -> LakeTableState:
        """The table as it was."""
        ...

    def find_unneeded(self, *, older_than_ms: int, now_ms: int) -> list[str]:
        """Files, of rows and of what is known of them, that no younger version needs, and that are
        themselves as old; older versions may be forgotten for that."""
        ...

    def forget(self) -> None:
        """It is no table any more; its files stay, since another one has them now."""
        ...

    def drop(self) -> None:
        """Takes away the table and all that is in its place."""
        ...


@dataclass(frozen=True, slots=True)
class Version:
    """A commit of a table: which part of the log, and of the source, it holds."""

    version: int
    committed_ms: int
    operation: str
    cut: int | None
    source_ms: int | None
    """When the source committed the newest change of the cut."""
    positions: Mapping[str, str]
    stands: Mapping[TopicPartition, int]


def owner_of(pipeline: str, sink: str, table: TableId) -> TableOwner:
    return TableOwner(pipeline, sink, table.namespace, table.name)


def transaction_name(
    pipeline: str, part: TopicPartition, stand: AppliedOffset, generation: int
) -> str:
    """Under which a table remembers where it stands in one partition."""
    return f"headwater:{pipeline}:{stand.topic_id}:{generation}:{part.partition}"
