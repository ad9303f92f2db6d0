"""A table's own properties: its owner and its offsets."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.core_log.model.log import TopicPartition
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.sink import AppliedOffset, AppliedOffsets
from headwater.sinks.spark.settings import Mode
from headwater.sinks.spark.table import (
    EPOCH,
    LakeTableState,
    TableCommit,
    TableCreation,
    TableOwner,
    TopicFeed,
    merge_feeds,
    transaction_name,
)

PREFIX = "headwater."


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
