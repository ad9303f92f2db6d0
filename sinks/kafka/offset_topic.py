"""The offsets and created topics of a Kafka sink, in a compacted topic beside its data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.sinks.sink import AppliedOffset, AppliedOffsets

# A consumer group cannot store them: a cluster accepts offsets only for its own topics, and forgets
# them a week after the group's last activity.
FORMAT_VERSION = 1
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20)}


def stands_topic(name: str) -> TopicSettings:
    return TopicSettings(name=name, partitions=1, config=CONFIG)


@dataclass(slots=True)
class StoredTopicOffsets:
    """The contents of the topic."""

    stands: dict[TopicPartition, AppliedOffset] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    """Topics that this sink has created, and may therefore delete."""


def encode_stands(stands: AppliedOffsets, *, now_ms: int) -> list[Batch]:
    """Returns one record per partition of our log."""
    keys = [orjson.dumps([topic, partition]) for topic, partition in stands]
    values = [
        {"version": FORMAT_VERSION, "topic_id": topic_id, "next_offset": next_offset}
        for topic_id, next_offset in stands.values()
    ]
    return _encode(keys, values, now_ms)


def encode_created(topic: str, *, now_ms: int) -> list[Batch]:
    return _encode([orjson.dumps(topic)], [{"version": FORMAT_VERSION, "is_created": True}], now_ms)


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
        stand = AppliedOffset(value["topic_id"], value["next_offset"])
        found.stands[TopicPartition(*key)] = stand
