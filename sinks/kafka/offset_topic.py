"""Offsets, created topics and their tables, as a Kafka sink keeps them beside its data."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from headwater.core_log.foundation.errors import DecodeError, SinkRejected
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import ColumnOrValue, TableChanges, source_times
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.partitioner import partitions_of
from headwater.core_log.rows.codec import RowCodec
from headwater.sinks.sink import AppliedOffset, AppliedOffsets

# A consumer group cannot store them: a cluster accepts offsets only for its own topics, and forgets
# them a week after the group's last activity.
FORMAT_VERSION = 1
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20)}


def offsets_topic(name: str) -> TopicSettings:
    return TopicSettings(name=name, partitions=1, config=CONFIG)


@dataclass(slots=True)
class StoredTopicOffsets:
    offsets: dict[TopicPartition, AppliedOffset] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    """Topics that this sink has created, and may therefore delete."""
    owners: dict[str, TableId] = field(default_factory=dict)
    """Topic to the table whose rows it has."""


def encode_offsets(offsets: AppliedOffsets, *, now_ms: int) -> list[Batch]:
    """Returns one record per partition of our log."""
    keys = [orjson.dumps([topic, partition]) for topic, partition in offsets]
    values: list[dict[str, object]] = [
        {"version": FORMAT_VERSION, **applied._asdict()} for applied in offsets.values()
    ]
    return _encode(keys, values, now_ms)


def encode_created(topic: str, *, now_ms: int) -> list[Batch]:
    return _encode([orjson.dumps(topic)], [{"version": FORMAT_VERSION, "is_created": True}], now_ms)


def encode_owner(topic: str, table: TableId, *, now_ms: int) -> list[Batch]:
    value = {"version": FORMAT_VERSION, "namespace": table.namespace, "table": table.name}
    return _encode([orjson.dumps({"topic": topic})], [value], now_ms)


def _encode(keys: list[bytes], values: list[dict[str, object]], now_ms: int) -> list[Batch]:
    texts = pa.array(map(orjson.dumps, values), pa.binary())
    return arrow_codec.encode(pa.array(keys, pa.binary()), texts, timestamps_ms=now_ms)


async def load_remembered(log: Log, topic: str) -> StoredTopicOffsets:
    """Reads the topic to its uncommitted end, and so waits for a commit in progress."""
    home = TopicPartition(topic, 0)
    bounds = (await log.bounds([home]))[home]
    found, offset = StoredTopicOffsets(), bounds.start
    while offset < bounds.end:
        for fetched in await log.fetch(
            {home: offset}, limit=FetchLimit(), isolation=Isolation.COMMITTED
        ):
            columns = arrow_codec.decode(fetched.data, from_offset=offset, partition=home)
            for key, value in zip(
                columns.keys.to_pylist(), columns.values.to_pylist(), strict=True
            ):
                _remember(found, orjson.loads(key), orjson.loads(value))
            offset = fetched.next_offset
    return found


def _remember(found: StoredTopicOffsets, key: object, value: Mapping[str, Any]) -> None:
    if value.get("version") != FORMAT_VERSION:
        raise DecodeError(
            "the stored offsets of this sink have the format of another version of headwater",
            version=value.get("version"),
        )
    if isinstance(key, str):
        found.created.add(key)
    elif isinstance(key, list):
        applied = AppliedOffset(
            value["topic_id"], value["next_offset"], value.get("leader_epoch", -1)
        )
        found.offsets[TopicPartition(*key)] = applied
    elif isinstance(key, dict) and "topic" in key:
        found.owners[key["topic"]] = TableId(value["namespace"], value["table"])


ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(slots=True)
class TopicWriter:
    topic: str
    table: TableId
    partition_count: int
    codec: RowCodec
    compression: int
    batch_bytes_max: int
    turn: int = 0
    """The next partition for tables without a key, whose batches rotate."""

    def encode(
        self, changes: TableChanges, *, pipeline: str, now_ms: int
    ) -> Iterator[tuple[TopicPartition, Batch]]:
        """Encodes changes. A truncate goes into every partition, as in our own log."""
        described = with_source(changes, pipeline)
        encoded = self.codec.encode(described, now_us=now_ms * 1_000)
        if changes.is_truncate and changes.truncated_where:
            raise SinkRejected(
                "a truncate of one part of a table has no form in a topic",
                hint="exclude this table, or give each part a topic of its own",
                table=str(changes.schema.table),
            )
        if changes.is_truncate:
            row_partitions = [(number, None) for number in range(self.partition_count)]
        else:
            row_partitions = list(self._spread(encoded.keys))
        for partition, rows in row_partitions:
            keys, values = encoded.keys, encoded.values
            if rows is not None:
                keys, values = keys.take(rows), values.take(rows)
            for batch in arrow_codec.encode(
                keys,
                values,
                timestamps_ms=now_ms,
                compression=self.compression,
                batch_bytes_max=self.batch_bytes_max,
            ):
                yield TopicPartition(self.topic, partition), batch

    def _spread(self, keys: pa.BinaryArray) -> Iterator[tuple[int, pa.Array | None]]:
        if self.partition_count == 1:
            yield 0, None
            return
        if keys.null_count:
            yield self.turn % self.partition_count, None
            self.turn += 1
            return
        row_partitions = partitions_of(keys, self.partition_count)
        for partition in np.unique(row_partitions).tolist():
            yield partition, pa.array(np.flatnonzero(row_partitions == partition))


def topic_name(template: str, *, pipeline: str, table: TableId) -> str:
    if not table.namespace:
        template = template.replace("{schema}.", "").replace("{schema}", "")
    names = {"pipeline": pipeline, "schema": table.namespace, "table": table.name}
    filled = re.sub(r"\{(pipeline|schema|table)\}", lambda found: names[found[1]], template)
    return ILLEGAL.sub("_", filled)


def with_source(changes: TableChanges, pipeline: str) -> TableChanges:
    """Fills the `source` block. The log returns only the time of it; other known fields are
    added."""
    table = changes.schema.table
    source: dict[str, ColumnOrValue] = {
        "version": _version(),
        "connector": "headwater",
        "name": pipeline,
        **source_times(changes.committed_us),
        "snapshot": "false",
        "db": table.namespace,
        "sequence": None,
        "schema": table.namespace,
        "table": table.name,
    }
    return replace(changes, source=source)


@cache
def _version() -> str:
    return version("headwater")
