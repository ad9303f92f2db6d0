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
"""Small, since whoever starts reads them whole and only closed segments are compacted."""
LIMIT = FetchLimit()
KINDS = ("transaction", "message", "heartbeat")
"""Events that belong to no table."""
RETENTION_MS = 7 * 24 * 3_600_000


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
    """Committed records only, but waits for what is open now to be decided. Ends at the batch that
    reaches `end`, where one is given: who has a transaction open there would wait for himself.

    Stopping at the last stable offset instead would hide our own committed records behind somebody
    else's open transaction. Records that age out meanwhile are passed over, as if they had
    before."""
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
    """Those of one of our own topics that hold anything, in their order, by one question."""
    bounds = await log.bounds([TopicPartition(topic, each) for each in range(PARTITIONS)])
    return sorted(each for each, found in bounds.items() if found.end > found.start)


def notice_topic(pipeline: str, kind: str) -> TopicSettings:
    """Notices are read as they come, and kept for a week."""
    return TopicSettings(
        name=f"{pipeline}.{kind}",
        config={"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)},
    )


class EventTopics:
    """Creates each topic when something is first to be said there."""

    def __init__(self, log: Log, pipeline: str) -> None:
        self._log, self._pipeline = log, pipeline
        self._known: set[str] = set()

    async def encode(
        self, notices: "EventMessages", *, now_ms: int
    ) -> AsyncIterator[tuple[TopicPartition, "Batch"]]:
        from headwater.core_log.records import arrow_codec
        from headwater.core_log.records.compression import Compression

        topic = notice_topic(self._pipeline, notices.kind)
        if notices.kind not in self._known:
            await self._log.ensure_topic(topic)
            self._known.add(notices.kind)
        for batch in arrow_codec.encode(
            notices.keys, notices.values, timestamps_ms=now_ms, compression=Compression.ZSTD
        ):
            yield TopicPartition(topic.name, 0), batch
