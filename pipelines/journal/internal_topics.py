"""Headwater's own topics in the log: whose partition is which, and how they are read to their end;
and its topics of events that belong to no table."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records.murmur2 import partition_of

if TYPE_CHECKING:
    from headwater.core_log.model.changes import EventMessages
    from headwater.core_log.records.batch_header import Batch
    from headwater.core_log.records.record_views import RecordColumns

POSITIONS = "__headwater_positions"
COMMITS = "__headwater_commits"
SCHEMAS = "__headwater_schemas"
CONTROL = "__headwater_control"
AUDIT = "__headwater_audit"
MEMBERS = "__headwater_members"
"""Only there once several runs may share a log."""

INTERNAL = frozenset({POSITIONS, COMMITS, SCHEMAS, CONTROL, AUDIT, MEMBERS})

PARTITIONS = 16
SEGMENT_BYTES = 4 << 20
"""Small, since every start reads them whole and only closed segments are compacted."""
LIMIT = FetchLimit()
EVENT_KINDS = ("transaction", "message", "heartbeat")
"""Events that belong to no table."""
EVENT_RETENTION_MS = 7 * 24 * 3_600_000


def internal_topics(*, history_ms: int) -> list[TopicSettings]:
    """`history_ms`: how long commit boundaries are remembered."""
    compacted = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
    aging = {"cleanup.policy": "delete", "retention.ms": str(history_ms)}
    return [
        TopicSettings(name=POSITIONS, partitions=PARTITIONS, config=compacted),
        TopicSettings(name=SCHEMAS, partitions=PARTITIONS, config=compacted),
        TopicSettings(name=CONTROL, partitions=PARTITIONS, config=compacted),
        TopicSettings(
            name=COMMITS,
            partitions=PARTITIONS,
            config=aging | {"segment.bytes": str(SEGMENT_BYTES)},
        ),
    ]


def home_of(topic: str, owner: str) -> TopicPartition:
    """Everything of one pipeline, or of one topic's schemas, is in one partition, in order."""
    return TopicPartition(topic, partition_of(owner.encode(), PARTITIONS))


async def read_decided(
    log: Log, partition: TopicPartition, *, from_offset: int = 0, end: int | None = None
) -> AsyncIterator["RecordColumns"]:
    """Yields committed records up to the present log end offset; waits for the end of open
    transactions.

    The last stable offset would hide our own committed records behind another open transaction. A
    caller with an open transaction gives `end`, else it would wait for itself. Records that age out
    meanwhile are passed over.
    """
    from headwater.core_log.records import arrow_codec

    bounds = (await log.bounds([partition]))[partition]
    offset = max(from_offset, bounds.start)
    end = bounds.end if end is None else min(end, bounds.end)
    while offset < end:
        try:
            parts = await log.fetch({partition: offset}, limit=LIMIT, isolation=Isolation.COMMITTED)
        except PositionLost:
            start = (await log.bounds([partition]))[partition].start
            if start <= offset:
                raise
            offset = start
            continue
        for part in parts:
            columns = arrow_codec.decode(part.data, from_offset=offset, partition=partition)
            offset = part.next_offset
            yield columns


async def filled_partitions(log: Log, topic: str) -> list[TopicPartition]:
    """Returns the partitions of an own topic that have records, in order, by one request."""
    bounds = await log.bounds([TopicPartition(topic, each) for each in range(PARTITIONS)])
    return sorted(each for each, found in bounds.items() if found.end > found.start)


def event_topic(pipeline: str, kind: str) -> TopicSettings:
    """Returns the topic of a kind of events, which are kept for a week."""
    return TopicSettings(
        name=f"{pipeline}.{kind}",
        config={"cleanup.policy": "delete", "retention.ms": str(EVENT_RETENTION_MS)},
    )


class EventTopics:
    """Creates each topic before its first event."""

    def __init__(self, log: Log, pipeline: str) -> None:
        self._log, self._pipeline = log, pipeline
        self._known: set[str] = set()

    async def encode(
        self, events: "EventMessages", *, now_ms: int
    ) -> AsyncIterator[tuple[TopicPartition, "Batch"]]:
        from headwater.core_log.records import arrow_codec
        from headwater.core_log.records.compression import Compression

        topic = event_topic(self._pipeline, events.kind)
        if events.kind not in self._known:
            await self._log.ensure_topic(topic)
            self._known.add(events.kind)
        for batch in arrow_codec.encode(
            events.keys, events.values, timestamps_ms=now_ms, compression=Compression.ZSTD
        ):
            yield TopicPartition(topic.name, 0), batch
