"""Topics and consumer groups as operators see them: how far they reach, who is how far behind."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.pipelines.journal.internal_topics import INTERNAL

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.client.group_admin import GroupDescription
    from headwater.core_log.client.topic_admin import TopicDescription


def is_internal(topic: "TopicDescription") -> bool:
    """Returns whether the topic is the log's own, or a pipeline's internal one."""
    return topic.is_internal or topic.name in INTERNAL


def parts_of(topic: "TopicDescription") -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition) for each in topic.partitions]


def span_of(bounds: Bounds) -> int:
    return bounds.end - bounds.start


def known_offset(offset: int) -> int | None:
    """Returns the offset, or None if the log answers -1 (unknown)."""
    return offset if offset >= 0 else None


def partition_rows(
    topic: "TopicDescription", bounds: Mapping[TopicPartition, Bounds]
) -> list[dict[str, object]]:
    """One row per partition, for programs and for tables."""
    return [
        {
            "partition": each.partition,
            "leader": each.leader,
            "replicas": ",".join(map(str, each.replicas)),
            "in_sync": ",".join(map(str, each.in_sync)),
            "start": bounds[part].start,
            "stable": bounds[part].stable,
            "end": bounds[part].end,
            "compacted_to": known_offset(bounds[part].cleaned_to),
            "deletes_dropped_to": known_offset(bounds[part].deletes_dropped_to),
        }
        for each, part in zip(topic.partitions, parts_of(topic), strict=True)
    ]


async def progress(log: "KafkaLog", group: "GroupDescription") -> list[dict[str, object]]:
    """Returns one row per partition that is assigned or has a committed offset."""
    committed = await log.committed_offsets(group.name)
    clients = {part: member.client_id for member in group.members for part in member.partitions}
    partitions = sorted({*committed, *clients})
    bounds = await log.bounds(partitions) if partitions else {}
    rows: list[dict[str, object]] = []
    for part in partitions:
        offset, end = committed.get(part), bounds[part].stable
        rows.append(
            {
                "topic": part.topic,
                "partition": part.partition,
                "committed": offset,
                "end": end,
                "lag": end - (bounds[part].start if offset is None else offset),
                "client": clients.get(part),
            }
        )
    return rows
