"""Transactions of a pipeline's source in the log: the boundaries between slices, and the source's
position, which the same transactions hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from headwater.core_log.foundation.errors import check_format
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.records.record_views import RecordColumns
from headwater.pipelines.journal.internal_topics import COMMITS, POSITIONS, home_of, read_decided

FORMAT_VERSION = 1
NO_TIME = 0
"""The time of a commit that is none of the source's: its place says nothing about when."""


class OffsetRange(NamedTuple):
    """The offsets that a transaction appended to one partition: from its first offset to its last
    plus one."""

    first: int
    end: int
    records: int
    bytes: int

    def extend_to(self, later: "OffsetRange") -> "OffsetRange":
        return OffsetRange(
            self.first, later.end, self.records + later.records, self.bytes + later.bytes
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction of the log."""

    pipeline: str
    committed_ms: int
    """When the newest of its changes was committed at the source."""
    positions: Positions
    """Which parts of the source's position it moved, and where to. Empty where it is not the
    source's, but somebody put records back or into another topic."""
    touched: Mapping[TopicPartition, OffsetRange]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Which topics those were, so that another one of the same name is told from them."""
    truncated: frozenset[str] = frozenset()
    """Topics of the tables that were truncated."""
    switched: frozenset[str] = frozenset()
    """Topics that were filled from former ones until here, and are their tables' from here on."""


def commits_home(pipeline: str) -> TopicPartition:
    return home_of(COMMITS, pipeline)


def encode_commit(commit: Commit, *, now_ms: int) -> Batch:
    touched: dict[str, dict[str, OffsetRange]] = {}
    for (topic, partition), offset_range in commit.touched.items():
        touched.setdefault(topic, {})[str(partition)] = offset_range
    value = orjson.dumps(
        {
            "version": FORMAT_VERSION,
            "pipeline": commit.pipeline,
            "committed_ms": commit.committed_ms,
            "positions": dict(commit.positions),
            "touched": {
                topic: {partition: tuple(offset_range) for partition, offset_range in parts.items()}
                for topic, parts in touched.items()
            },
            "topic_ids": dict(commit.topic_ids),
            "truncated": sorted(commit.truncated),
        }
        | ({"switched": sorted(commit.switched)} if commit.switched else {})
    )
    return small_batch([(commit.pipeline.encode(), value)], now_ms=now_ms)


def decode_commits(columns: RecordColumns, pipeline: str) -> Iterator[tuple[int, Commit]]:
    """The commits of one pipeline among those that share its partition, with their offsets."""
    ours = pipeline.encode()
    for offset, key, value in zip(
        columns.offsets.tolist(), columns.keys.to_pylist(), columns.values.to_pylist(), strict=True
    ):
        if key == ours:
            yield offset, _commit_of(orjson.loads(value))


def _commit_of(content: Mapping[str, Any]) -> Commit:
    check_format(
        content["version"], FORMAT_VERSION, "a commit was written", pipeline=content["pipeline"]
    )
    return Commit(
        pipeline=content["pipeline"],
        committed_ms=content["committed_ms"],
        positions=content["positions"],
        touched={
            TopicPartition(topic, int(partition)): OffsetRange(*offset_range)
            for topic, parts in content["touched"].items()
            for partition, offset_range in parts.items()
        },
        topic_ids=content.get("topic_ids", {}),
        truncated=frozenset(content["truncated"]),
        switched=frozenset(content.get("switched", ())),
    )


def small_batch(records: Sequence[tuple[bytes, bytes | None]], *, now_ms: int) -> Batch:
    """Keys and values, uncompressed."""
    plain = [PlainRecord(key, value, timestamp_ms=now_ms) for key, value in records]
    return Batch(encode_batch(plain), len(plain), now_ms)


def positions_home(pipeline: str) -> TopicPartition:
    return home_of(POSITIONS, pipeline)


def encode_positions(pipeline: str, positions: Mapping[str, str | None], *, now_ms: int) -> Batch:
    """Returns one keyed record per part; None removes the part."""
    keys = [orjson.dumps([pipeline, part]) for part in positions]
    values = [
        None
        if position is None
        else orjson.dumps({"version": FORMAT_VERSION, "position": position})
        for position in positions.values()
    ]
    return small_batch(list(zip(keys, values, strict=True)), now_ms=now_ms)


async def load_positions(log: Log, pipeline: str) -> Positions:
    """Returns the newest committed position of every part. A caller that goes on from there has
    opened its writer before, which fences another one that could move them."""
    found: dict[str, str] = {}
    async for columns in read_decided(log, positions_home(pipeline)):
        for key, value in zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True):
            owner, part = orjson.loads(key)
            if owner != pipeline:
                continue
            if value is None:
                found.pop(part, None)
                continue
            content = orjson.loads(value)
            check_format(
                content["version"],
                FORMAT_VERSION,
                "a position was written",
                pipeline=pipeline,
                part=part,
            )
            found[part] = content["position"]
    return found
