"""Topics and consumer groups: their sizes, rates, partitions, configuration, members and lag."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import Bounds, FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.journal.inventory import every_schema_of, pipelines_in
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.watching.topics_view import (
    is_internal,
    known_offset,
    parts_of,
    progress,
    span_of,
)

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

RATE_MS = 60_000
POLICY = "cleanup.policy"
ONE_BATCH = FetchLimit(bytes_max=1, wait_ms_max=0)
MARKERS_MAX = 8
"""Batches without records that are passed on the way to the next record."""
BEHIND_MARKER = 2
"""The last offset of a topic with transactions is a marker, and the one before it a record."""
LAGS_MAX = 64
"""Partitions of a group whose oldest unread record is looked up."""


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic in the list."""

    topic: str
    partitions: int
    offsets: int
    """Between its start and its end."""
    bytes: int | None
    """On disk; None where the broker does not say."""
    last_minute: int
    """Offsets appended in the last minute."""
    cleanup: str | None
    is_internal: bool
    pipeline: str | None
    table: str | None
    """The table whose changes it has, by its name at the source."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition."""

    partition: int
    leader: int
    in_sync: list[int]
    start: int
    cleaned_to: int | None
    stable: int
    end: int
    bytes: int | None
    oldest_ms: int | None
    newest_ms: int | None


@dataclass(frozen=True, slots=True)
class ConfigLine:
    """One key of a topic's configuration."""

    name: str
    value: str | None
    is_default: bool


@dataclass(frozen=True, slots=True)
class TopicPage:
    """One topic."""

    topic: str
    id: str
    is_internal: bool
    pipeline: str | None
    table: str | None
    partitions: list[PartitionFacts]
    config: list[ConfigLine]


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One consumer group in the list."""

    group: str
    state: str
    protocol: str
    members: int
    lag: int
    """Records that it has not read, over all partitions; -1 where that cannot be told."""


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """One member of a group."""

    member: str
    instance: str | None
    client: str
    host: str


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """Where a group stands in a partition."""

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int
    lag_ms: int | None
    """The age of the oldest record that it has not read; 0 where it has read all."""
    client: str | None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """One consumer group."""

    group: str
    state: str
    members: list[MemberFacts]
    partitions: list[GroupPartition]


async def table_topics(log: Log) -> Mapping[str, StoredSchema]:
    """The newest schema of every topic that is a table's."""
    found: dict[str, StoredSchema] = {}
    for pipeline in await pipelines_in(log):
        found |= await every_schema_of(log, pipeline)
    return found


async def list_topics(log: "KafkaLog") -> list[TopicLine]:
    topics = await log.topics.all()
    places = [place for topic in topics for place in parts_of(topic)]
    a_minute_ago = unix_ms() - RATE_MS
    bounds, before, sizes, policies, tables = await asyncio.gather(
        log.bounds(places),
        log.offsets_at(places, timestamp_ms=a_minute_ago),
        sizes_of(log),
        log.topics.config_of_each([each.name for each in topics], POLICY),
        table_topics(log),
    )
    found: list[TopicLine] = []
    for topic in topics:
        mine, stored = parts_of(topic), tables.get(topic.name)
        known = [sizes[at] for at in mine if at in sizes]
        found.append(
            TopicLine(
                topic=topic.name,
                partitions=len(mine),
                offsets=sum(span_of(bounds[at]) for at in mine),
                bytes=sum(known) if known else None,
                last_minute=sum(max(bounds[at].end - before[at], 0) for at in mine),
                cleanup=policies.get(topic.name),
                is_internal=is_internal(topic),
                pipeline=stored.pipeline if stored else None,
                table=str(stored.schema.table) if stored else None,
            )
        )
    return found


async def sizes_of(log: "KafkaLog") -> Mapping[TopicPartition, int]:
    """Some clusters let only administrators ask."""
    try:
        return await log.topics.sizes()
    except HeadwaterError:
        return {}


async def describe_topic(log: "KafkaLog", name: str) -> TopicPage:
    topic = await log.topics.describe(name)
    places = parts_of(topic)
    bounds, sizes, config, tables = await asyncio.gather(
        log.bounds(places), sizes_of(log), log.topics.config(name), table_topics(log)
    )
    times = await asyncio.gather(*(_oldest_and_newest(log, at, bounds[at]) for at in places))
    stored = tables.get(name)
    return TopicPage(
        topic=name,
        id=str(topic.topic_id),
        is_internal=is_internal(topic),
        pipeline=stored.pipeline if stored else None,
        table=str(stored.schema.table) if stored else None,
        partitions=[
            PartitionFacts(
                partition=each.partition,
                leader=each.leader,
                in_sync=list(each.in_sync),
                start=bounds[at].start,
                cleaned_to=known_offset(bounds[at].cleaned_to),
                stable=bounds[at].stable,
                end=bounds[at].end,
                bytes=sizes.get(at),
                oldest_ms=oldest,
                newest_ms=newest,
            )
            for each, at, (oldest, newest) in zip(topic.partitions, places, times, strict=True)
        ],
        config=[ConfigLine(each.name, each.value, each.is_default) for each in config],
    )


async def _oldest_and_newest(
    log: Log, at: TopicPartition, bounds: Bounds
) -> tuple[int | None, int | None]:
    if bounds.start >= bounds.stable:
        return None, None
    oldest = await _times_from(log, at, bounds.start)
    newest = await _times_from(log, at, max(bounds.stable - BEHIND_MARKER, bounds.start))
    return next(iter(oldest), None), next(iter(reversed(newest)), None)


async def _times_from(log: Log, at: TopicPartition, offset: int) -> list[int]:
    """When the first records at or behind an offset were appended; markers are passed."""
    for _ in range(MARKERS_MAX):
        fetched = await log.fetch({at: offset}, limit=ONE_BATCH, isolation=Isolation.COMMITTED)
        for each in fetched:
            columns = arrow_codec.decode(each.data, from_offset=offset, partition=at)
            if len(columns):
                return [int(time_ms) for time_ms in columns.timestamps_ms.tolist()]
            offset = each.next_offset
        if not fetched:
            break
    return []


async def list_groups(log: "KafkaLog") -> list[GroupLine]:
    found: list[GroupLine] = []
    for each in await log.groups.all():
        try:
            group = await log.groups.describe(each.name)
            rows = await progress(log, group)
        except HeadwaterError:  # it, or a topic that it has read, has just gone
            found.append(GroupLine(each.name, each.state, each.protocol, 0, -1))
            continue
        lag = sum(max(_int(row["lag"]), 0) for row in rows)
        found.append(GroupLine(each.name, group.state, each.protocol, len(group.members), lag))
    return found


async def describe_group(log: "KafkaLog", name: str) -> GroupPage:
    group = await log.groups.describe(name)
    rows = await progress(log, group)
    now_ms = unix_ms()
    ages = await asyncio.gather(*(_lag_ms(log, row, now_ms) for row in rows[:LAGS_MAX]))
    return GroupPage(
        group=group.name,
        state=group.state,
        members=[
            MemberFacts(each.member_id, each.instance_id, each.client_id, each.client_host)
            for each in group.members
        ],
        partitions=[
            GroupPartition(
                topic=str(row["topic"]),
                partition=_int(row["partition"]),
                committed=None if row["committed"] is None else _int(row["committed"]),
                end=_int(row["end"]),
                lag=_int(row["lag"]),
                lag_ms=ages[number] if number < len(ages) else None,
                client=None if row["client"] is None else str(row["client"]),
            )
            for number, row in enumerate(rows)
        ],
    )


async def _lag_ms(log: Log, row: Mapping[str, object], now_ms: int) -> int | None:
    if _int(row["lag"]) <= 0:
        return 0
    if row["committed"] is None:
        return None
    at = TopicPartition(str(row["topic"]), _int(row["partition"]))
    times = await _times_from(log, at, _int(row["committed"]))
    return max(now_ms - times[0], 0) if times else None


def _int(value: object) -> int:
    assert isinstance(value, int), "counts and offsets are numbers"
    return value
