"""Start and end offsets of partitions, offsets by time (ListOffsets), and the ends of leader
epochs."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.gather import together
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.links.node import Node
from headwater.core_log.model.log import Bounds, Isolation, Offsets, RetainedRange, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.list_offsets import (
    CLEANED_TO,
    DELETES_DROPPED_TO,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.core_log.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LATEST, EARLIEST = -1, -2
CANNOT_TELL = -1
MEANS_UNSUPPORTED = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST})

COMMITTED, UNCOMMITTED = Isolation.COMMITTED, Isolation.UNCOMMITTED


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int = -1


NOT_FOUND = OffsetAndTimestamp(CANNOT_TELL, -1)


class LogOffsets:
    """Offset requests to the leaders of partitions; each is one round trip for any number of
    partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def bounds(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        """Returns the bounds. The end is requested after the stable offset, so it is never below
        it."""
        wanted = list(partitions)
        start, stable, end, cleaned_to, deletes_dropped_to = await together(
            [
                self.find(wanted, EARLIEST),
                self.find(wanted, LATEST, isolation=COMMITTED),
                self.find(wanted, LATEST),
                self.find(wanted, CLEANED_TO),
                self.find(wanted, DELETES_DROPPED_TO),
            ]
        )
        return {
            partition: Bounds(
                start=start[partition].offset,
                stable=stable[partition].offset,
                end=max(end[partition].offset, stable[partition].offset),
                cleaned_to=_private(cleaned_to[partition], CLEANED_TO),
                deletes_dropped_to=_private(deletes_dropped_to[partition], DELETES_DROPPED_TO),
            )
            for partition in wanted
        }

    async def retained_ranges(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, RetainedRange]:
        """Returns the ranges with half the requests of `bounds`; none of them waits for a sync."""
        wanted = list(partitions)
        start, cleaned_to, deletes_dropped_to = await together(
            self.find(wanted, each) for each in (EARLIEST, CLEANED_TO, DELETES_DROPPED_TO)
        )
        return {
            partition: RetainedRange(
                start=start[partition].offset,
                cleaned_to=_private(cleaned_to[partition], CLEANED_TO),
                deletes_dropped_to=_private(deletes_dropped_to[partition], DELETES_DROPPED_TO),
                leader_epoch=_epoch(cleaned_to[partition]),
            )
            for partition in wanted
        }

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        from headwater.core_log.client.offsets import ask_for_ends

        async def attempt() -> dict[TopicPartition, int]:
            leaders = await self._cluster.leaders(epochs)
            found = await together(
                ask_for_ends(self._cluster, node, {each: epochs[each] for each in theirs})
                for node, theirs in leaders.items()
            )
            return {partition: end for part in found for partition, end in part.items()}

        return await self._cluster.persist(attempt) if epochs else {}

    async def at(self, partitions: Iterable[TopicPartition], *, timestamp_ms: int) -> Offsets:
        wanted = list(partitions)
        found = await self.find(wanted, timestamp_ms)
        later = [partition for partition in wanted if found[partition].offset < 0]
        ends = await self.find(later, LATEST) if later else {}
        return {each: ends.get(each, found[each]).offset for each in wanted}

    async def find(
        self,
        partitions: list[TopicPartition],
        timestamp: int,
        *,
        isolation: Isolation = UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        async def attempt() -> dict[TopicPartition, OffsetAndTimestamp]:
            leaders = await self._cluster.leaders(partitions)
            found = await together(
                self._ask(node, theirs, timestamp, isolation) for node, theirs in leaders.items()
            )
            return {partition: each for part in found for partition, each in part.items()}

        return await self._cluster.persist(attempt)

    async def _ask(
        self, node: Node, partitions: list[TopicPartition], timestamp: int, isolation: Isolation
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, index in partitions:
            part = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            topics.setdefault(topic, []).append(part)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation.value,
            topics=[ListOffsetsTopic(name=name, partitions=p) for name, p in topics.items()],
            timeout_ms=self._cluster.settings.request_wait_ms_max,
        )
        try:
            response = await node.ask(request)
        except ConnectionLost:
            for topic in topics:
                self._cluster.forget_topic(topic)
            raise
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        for topic_response in response.topics:
            for line in topic_response.partitions:
                partition = TopicPartition(topic_response.name, line.partition_index)
                if timestamp < EARLIEST and ErrorCode(line.error_code) in MEANS_UNSUPPORTED:
                    found[partition] = NOT_FOUND
                    continue
                self._cluster.check(line.error_code, partition)
                found[partition] = OffsetAndTimestamp(
                    line.offset, line.timestamp, line.leader_epoch
                )
        return found


def _private(found: OffsetAndTimestamp, timestamp: int) -> int:
    """Returns a private offset. A broker that took the special value for a time answers with a
    record's own timestamp."""
    return found.offset if found.timestamp == timestamp else CANNOT_TELL


def _epoch(found: OffsetAndTimestamp) -> int:
    """Returns the leader epoch of an answer with a private offset."""
    return found.leader_epoch if found.timestamp == CLEANED_TO else CANNOT_TELL


async def ask_for_ends(
    cluster: Cluster, node: Node, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, index), epoch in epochs.items():
        part = OffsetForLeaderPartition(partition=index, leader_epoch=epoch)
        topics.setdefault(topic, []).append(part)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderTopic(topic=name, partitions=p) for name, p in topics.items()],
    )
    try:
        response = await node.ask(request)
    except ConnectionLost:
        for topic in topics:
            cluster.forget_topic(topic)
        raise
    found: dict[TopicPartition, int] = {}
    for answered in response.topics:
        for line in answered.partitions:
            partition = TopicPartition(answered.topic, line.partition)
            cluster.check(line.error_code, partition)
            found[partition] = line.end_offset
    return found
