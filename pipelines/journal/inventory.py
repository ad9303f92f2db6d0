"""The traces of pipelines in a log: their names, tables, topics and groups."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.model.log import Log
from headwater.pipelines.dead_letters.dead_letter import dead_letter_topic
from headwater.pipelines.journal.control import DROPPED
from headwater.pipelines.journal.event_topics import KINDS, notice_topic
from headwater.pipelines.journal.internal_topics import CONTROL, POSITIONS, SCHEMAS
from headwater.pipelines.journal.read_to_end import filled_partitions, read_decided
from headwater.pipelines.journal.schemas import (
    StoredSchema,
    every_topic_of,
    read_schemas,
    topics_of,
)

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

GROUP_PREFIX = "headwater."


@dataclass(frozen=True, slots=True)
class PipelineInventory:
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    """Each remembers for the log's own tools how far a sink has come."""

    @property
    def is_empty(self) -> bool:
        return not self.topics and not self.groups


async def pipelines_in(log: Log) -> frozenset[str]:
    """Everybody who has a position, a schema or a signal in the log."""
    found: set[str] = set()
    for topic in (POSITIONS, CONTROL):
        found |= await _owners(log, topic)
    async for stored in _schemas(log):
        found.add(stored.pipeline)
    return frozenset(found)


async def schemas_of(log: Log, pipeline: str) -> Mapping[str, StoredSchema]:
    """The newest schema of every topic of a pipeline; none where it has never run."""
    try:
        return await topics_of(log, pipeline)
    except LogRejected:
        return {}


async def every_schema_of(log: Log, pipeline: str) -> Mapping[str, StoredSchema]:
    """The same with topics that another one has taken the place of."""
    try:
        return await every_topic_of(log, pipeline)
    except LogRejected:
        return {}


async def tables_of(log: Log, pipeline: str) -> frozenset[str]:
    return frozenset(
        str(stored.schema.table) for stored in (await schemas_of(log, pipeline)).values()
    )


async def leavings_of(log: "KafkaLog", pipeline: str) -> PipelineInventory:
    existing = {topic.name for topic in await log.topics.all()}
    notices = [notice_topic(pipeline, kind).name for kind in KINDS]
    wanted = [*await every_schema_of(log, pipeline), dead_letter_topic(pipeline).name, *notices]
    prefix = f"{GROUP_PREFIX}{pipeline}."
    groups = [group.name for group in await log.groups.all() if group.name.startswith(prefix)]
    return PipelineInventory(tuple(topic for topic in wanted if topic in existing), tuple(groups))


async def _owners(log: Log, topic: str) -> set[str]:
    """Pipelines by the keys of a compacted topic: each begins with its pipeline's name."""
    kept: set[bytes] = set()
    try:
        homes = await filled_partitions(log, topic)
    except LogRejected:
        return set()  # the topic is not there, so no pipeline has ever run
    for home in homes:
        async for columns in read_decided(log, home):
            keys, values = columns.keys.to_pylist(), columns.values.to_pylist()
            for key, value in zip(keys, values, strict=True):
                (kept.discard if value is None else kept.add)(key)
    named = [orjson.loads(key) for key in kept]
    return {name for name, *rest in named if topic != CONTROL or rest[-1] != DROPPED}


async def _schemas(log: Log) -> AsyncIterator[StoredSchema]:
    try:
        homes = await filled_partitions(log, SCHEMAS)
    except LogRejected:
        return
    for home in homes:
        async for stored in read_schemas(log, home):
            yield stored
