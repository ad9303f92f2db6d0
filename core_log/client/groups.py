"""Offsets that consumer groups have committed, outside of transactions."""

from headwater.core_log.client.coordinators import Coordinates, Coordinators
from headwater.core_log.model.log import Offsets, TopicPartition
from headwater.core_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headwater.core_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)

BY_NAME = 9  # of OffsetCommit: later versions name topics by id
ONE_GROUP = 7  # of OffsetFetch: the last version that asks for one group by name


async def commit_offsets(coordinators: Coordinators, group: str, offsets: Offsets) -> None:
    """As somebody outside the group: refused while the group has members of its own."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        part = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics.setdefault(topic, []).append(part)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=p) for name, p in topics.items()],
    )

    def codes(said: OffsetCommitResponse) -> list[int]:
        return [part.error_code for topic in said.topics for part in topic.partitions]

    await coordinators.ask(Coordinates.GROUP, group, request, codes=codes, version_max=BY_NAME)


async def committed_offsets(coordinators: Coordinators, group: str) -> Offsets:
    """Waits for transactions that are just about to commit offsets of this group."""

    def codes(said: OffsetFetchResponse) -> list[int]:
        parts = [part.error_code for topic in said.topics for part in topic.partitions]
        return [said.error_code, *parts]

    said = await coordinators.ask(
        Coordinates.GROUP,
        group,
        OffsetFetchRequest(group_id=group, topics=None, require_stable=True),
        codes=codes,
        version_max=ONE_GROUP,
    )
    return {
        TopicPartition(topic.name, part.partition_index): part.committed_offset
        for topic in said.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }
