"""A table of the lake in any format: its state at one version, and one commit."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, ConsistentCut
from headwater.sinks.spark.key_ranges import DataFile
from headwater.sinks.spark.settings import Mode

EPOCH = ":epoch"
"""Ending of the name under which a leader epoch is stored."""
PREFIX = "headwater."


class Overtaken(Exception):
    """Another commit came after the state was loaded."""


def rows_deleted_elsewhere(place: str) -> SinkRejected:
    return SinkRejected(
        "another program has deleted single rows of the table's files: their rows are not the "
        "table's any more",
        place=place,
        hint="let that program rewrite the files (Delta in Spark: REORG TABLE ... APPLY (PURGE); "
        "Iceberg: OPTIMIZE in Trino, rewrite_data_files in Spark); or drop the table with its "
        "data, and it is filled again: headwater drop PIPELINE/TABLE --data",
    )


class TableOwner(NamedTuple):
    """The owner of a table; it is stored in it, and checked before a write."""

    pipeline: str
    sink: str
    namespace: str
    table: str
    """The source's table."""


@dataclass(frozen=True, slots=True)
class TopicFeed:
    """A topic whose changes went into a table."""

    topic_id: str
    partitions: int


def merge_feeds(
    held: Mapping[str, TopicFeed], more: Mapping[str, TopicFeed]
) -> dict[str, TopicFeed]:
    """Merges feeds: a slice need not touch all partitions of a topic."""
    found = dict(held)
    for topic, feed in more.items():
        before = held.get(topic)
        is_same = before is not None and before.topic_id == feed.topic_id
        count = max(feed.partitions, before.partitions) if before and is_same else feed.partitions
        found[topic] = TopicFeed(feed.topic_id, count)
    return found


@dataclass(frozen=True, slots=True)
class LakeTableState:
    """A table at one version. Its offsets are stored in it, in the commit of its rows."""

    version: int
    """Delta: the version of its log; Iceberg: a counter in a property."""
    id: str
    """The table's id; a table that was created again has another."""
    schema: pa.Schema
    files: tuple[DataFile, ...]
    offsets: AppliedOffsets
    generation: int
    mode: Mode
    key: str
    """First column of the row key; empty if the table has no key."""
    owner: TableOwner | None
    """None if no pipeline made the table."""
    feeds: Mapping[str, TopicFeed] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    columns: ColumnIds = field(default_factory=ColumnIds)
    """The columns of the source that the table has."""
    is_put_back: bool = False
    """Restored by somebody who could not store the offsets: `offsets` do not match its rows."""
    native: Any = field(default=None, repr=False, compare=False)
    """The format's own handle of this version."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit, atomic."""

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    offsets: AppliedOffsets = field(default_factory=dict)
    feeds: Mapping[str, TopicFeed] = field(default_factory=dict)
    cut: ConsistentCut | None = None
    committed_ms: int = 0
    schema: pa.Schema | None = None
    """The new columns, if they change."""
    columns: ColumnIds | None = None
    """The columns with the source's ids, if they change."""
    becomes: "TableCreation | None" = None
    """The identity that a rebuilt shadow was made with; the table has it from now on."""
    operation: str = "MERGE"
    keeps_rows: bool = False
    """The rows stay the same and are only in other files."""


@dataclass(frozen=True, slots=True)
class TableCreation:
    """A table's first properties."""

    id: str
    schema: pa.Schema
    mode: Mode
    key: str
    owner: TableOwner
    partition_by: tuple[str, ...] = ()
    generation: int = 1
    columns: ColumnIds = field(default_factory=ColumnIds)

    def state(self, feeds: Mapping[str, TopicFeed]) -> LakeTableState:
        """Returns the state before the first commit."""
        return LakeTableState(
            version=-1,
            id=self.id,
            schema=self.schema,
            files=(),
            offsets={},
            generation=self.generation,
            mode=self.mode,
            key=self.key,
            owner=self.owner,
            feeds=feeds,
            partition_by=self.partition_by,
        )


class LakeTable(Protocol):
    """One table of a lake by its path. Every method may be called from any thread."""

    def load(self) -> LakeTableState | None:
        """Returns the state; None if there is no table."""
        ...

    def create(self, creation: TableCreation, change: TableCommit) -> LakeTableState:
        """Creates the table with its first rows; raises `Overtaken` if it exists."""
        ...

    def commit(self, state: LakeTableState, change: TableCommit) -> LakeTableState:
        """Commits after `state`; raises `Overtaken` if the table has another state now."""
        ...

    def versions(self, count: int) -> Sequence["Version"]:
        """Yields the newest versions that store offsets, newest first."""
        ...

    def at(self, version: int) -> LakeTableState:
        """Returns the table at a former version."""
        ...

    def find_unneeded(self, *, older_than_ms: int, now_ms: int) -> list[str]:
        """Returns data and metadata files that no younger version needs and that are as old
        themselves; older versions may be expired for that."""
        ...

    def forget(self) -> None:
        """Removes the table but not its files, because another table has them now."""
        ...

    def drop(self) -> None:
        """Removes the table and everything below its path."""
        ...


@dataclass(frozen=True, slots=True)
class Version:
    """A commit of a table: the offsets of the log, and of the source, that it holds."""

    version: int
    committed_ms: int
    operation: str
    cut: int | None
    source_ms: int | None
    """When the source committed the newest change of the cut."""
    positions: Mapping[str, str]
    offsets: Mapping[TopicPartition, int]


def owner_of(pipeline: str, sink: str, table: TableId) -> TableOwner:
    return TableOwner(pipeline, sink, table.namespace, table.name)


def stored_numbers(pipeline: str, offsets: AppliedOffsets, generation: int) -> dict[str, int]:
    """Returns the offsets, and the leader epochs that are known, by the names under which a table
    stores them."""
    found: dict[str, int] = {}
    for part, applied in sorted(offsets.items()):
        name = transaction_name(pipeline, part, applied, generation)
        found[name] = applied.next_offset
        if applied.leader_epoch >= 0:
            found[name + EPOCH] = applied.leader_epoch
    return found


def transaction_name(
    pipeline: str, part: TopicPartition, applied: AppliedOffset, generation: int
) -> str:
    """Returns the transaction id under which a table stores its offset of one partition."""
    return f"headwater:{pipeline}:{applied.topic_id}:{generation}:{part.partition}"


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """The properties of a lake table that say whose it is, and what it keeps."""

    owner: TableOwner | None
    feeds: Mapping[str, TopicFeed]
    mode: Mode
    key: str
    generation: int
    columns: ColumnIds

    def offsets(self, next_offset: Callable[[str], int | None]) -> AppliedOffsets:
        """`next_offset` returns what the table stores under a transaction's name."""
        found: dict[TopicPartition, AppliedOffset] = {}
        if self.owner is None:
            return found
        for topic, feed in self.feeds.items():
            for number in range(feed.partitions):
                part, applied = TopicPartition(topic, number), AppliedOffset(feed.topic_id, 0)
                name = transaction_name(self.owner.pipeline, part, applied, self.generation)
                offset = next_offset(name)
                if offset is not None:
                    epoch = next_offset(name + EPOCH)
                    known = -1 if epoch is None else epoch
                    found[part] = applied._replace(next_offset=offset, leader_epoch=known)
        return found


def identity_in(properties: Mapping[str, str]) -> TableIdentity:
    feeds = json.loads(properties.get(f"{PREFIX}feeds", "{}"))
    owner = None
    if f"{PREFIX}pipeline" in properties:
        pipeline, sink = properties[f"{PREFIX}pipeline"], properties[f"{PREFIX}sink"]
        owner = TableOwner(pipeline, sink, *json.loads(properties[f"{PREFIX}table"]))
    return TableIdentity(
        owner,
        {topic: TopicFeed(*each) for topic, each in feeds.items()},
        properties.get(f"{PREFIX}mode", "mirror"),  # type: ignore[arg-type]
        properties.get(f"{PREFIX}key", ""),
        int(properties.get(f"{PREFIX}generation", "0")),
        ColumnIds.parse(properties.get(f"{PREFIX}columns")),
    )


def properties_of(like: TableCreation, feeds: Mapping[str, TopicFeed]) -> dict[str, str]:
    owner = like.owner
    return {
        f"{PREFIX}pipeline": owner.pipeline,
        f"{PREFIX}sink": owner.sink,
        f"{PREFIX}table": json.dumps([owner.namespace, owner.table]),
        f"{PREFIX}mode": like.mode,
        f"{PREFIX}key": like.key,
        f"{PREFIX}generation": str(like.generation),
        f"{PREFIX}feeds": json.dumps(
            {topic: [feed.topic_id, feed.partitions] for topic, feed in sorted(feeds.items())}
        ),
        f"{PREFIX}columns": like.columns.text(),
    }


def continue_table(
    state: LakeTableState, change: TableCommit
) -> tuple[TableCreation, Mapping[str, TopicFeed]]:
    """Returns the table's identity and feeds after the change."""
    assert state.owner is not None, "only a table of ours is written to"
    if change.becomes is not None:
        return change.becomes, dict(change.feeds)
    like = TableCreation(
        id=state.id,
        schema=state.schema if change.schema is None else change.schema,
        mode=state.mode,
        key=state.key,
        owner=state.owner,
        partition_by=state.partition_by,
        generation=state.generation,
        columns=state.columns if change.columns is None else change.columns,
    )
    return like, merge_feeds(state.feeds, change.feeds)
