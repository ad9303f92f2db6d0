"""Reads raw record batches from leaders, or from near replicas in their place, and waits until
there are some."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.gather import first, together
from headwater.core_log.client.offsets import EARLIEST, LATEST, LogOffsets
from headwater.core_log.client.retry_policy import check
from headwater.core_log.foundation.errors import CorruptLog, PositionLost, UnreadableBatch
from headwater.core_log.links.connection import ConnectionLost, RetriableFailure
from headwater.core_log.links.node import Node
from headwater.core_log.model.log import Fetched, FetchLimit, Isolation, Offsets, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader

LEASE_S = 10.0
"""After it the leader is asked again: the replica may have been cut off meanwhile. Java's client
waits for five minutes."""


class Fetcher:
    """A reader without fetch sessions: each request names all its partitions."""

    def __init__(self, cluster: Cluster, offsets: LogOffsets) -> None:
        self._cluster, self._offsets = cluster, offsets
        self._replicas = ReadReplicas(cluster)

    async def fetch(
        self, wanted: Offsets, *, limit: FetchLimit, isolation: Isolation
    ) -> Sequence[Fetched]:
        """Returns the batches; partitions without progress for the reader are left out."""
        if not wanted:
            return []

        async def attempt() -> Sequence[Fetched]:
            while True:
                named = self._replicas.count
                nodes = self._replicas.use(await self._cluster.leaders(wanted))
                if len(nodes) == 1:
                    found = await self._poll(next(iter(nodes)), wanted, limit, isolation)
                else:
                    found = await self._poll_all(nodes, wanted, limit, isolation)
                if found or self._replicas.count == named:
                    return found

        return await self._cluster.persist(attempt)

    async def _poll_all(
        self,
        nodes: Mapping[Node, list[TopicPartition]],
        wanted: Offsets,
        limit: FetchLimit,
        isolation: Isolation,
    ) -> Sequence[Fetched]:
        """Returns at once what some broker has at once; else the first answer with records."""
        bytes_max = max(limit.bytes_max // len(nodes), 1)
        shares = [(node, {each: wanted[each] for each in theirs}) for node, theirs in nodes.items()]
        at_once = FetchLimit(bytes_max, bytes_min=limit.bytes_min, wait_ms_max=0)
        answers = await together(
            self._poll(node, share, at_once, isolation) for node, share in shares
        )
        if any(answers) or limit.wait_ms_max == 0:
            return [fetched for answer in answers for fetched in answer]
        later = FetchLimit(bytes_max, limit.bytes_min, limit.wait_ms_max)
        return await first(self._poll(node, share, later, isolation) for node, share in shares)

    async def _poll(
        self, node: Node, wanted: Offsets, limit: FetchLimit, isolation: Isolation
    ) -> Sequence[Fetched]:
        request = self._request(wanted, limit, isolation)
        try:
            said = await node.poll(request, wait_ms=limit.wait_ms_max)
        except ConnectionLost:
            for partition in wanted:
                self._replicas.drop(partition)
                self._cluster.forget_topic(partition.topic)
            raise
        check(said.error_code)
        names = {topic.topic_id: topic.topic for topic in request.topics}
        found: list[Fetched] = []
        for topic in said.responses:
            name = topic.topic or names[topic.topic_id]
            for line in topic.partitions:
                partition = TopicPartition(name, line.partition_index)
                if line.preferred_read_replica != NO_REPLICA:
                    self._replicas.name(partition, line.preferred_read_replica)
                    continue
                await self._check(line, partition, wanted[partition])
                fetched = _visible(line, partition, wanted[partition], isolation)
                if fetched.next_offset > wanted[partition]:
                    found.append(fetched)
        return found

    def _request(self, wanted: Offsets, limit: FetchLimit, isolation: Isolation) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for (topic, index), offset in wanted.items():
            part = FetchPartition(
                partition=index,
                current_leader_epoch=self._cluster.leader_epoch(TopicPartition(topic, index)),
                fetch_offset=offset,
                partition_max_bytes=limit.bytes_max,
            )
            topics.setdefault(topic, []).append(part)
        return FetchRequest(
            max_wait_ms=limit.wait_ms_max,
            min_bytes=limit.bytes_min,
            max_bytes=limit.bytes_max,
            isolation_level=isolation.value,
            rack_id=self._cluster.settings.rack,
            topics=[
                FetchTopic(topic=name, topic_id=self._cluster.topic_id(name), partitions=parts)
                for name, parts in topics.items()
            ],
        )

    async def _check(self, line: PartitionData, partition: TopicPartition, offset: int) -> None:
        code = ErrorCode(line.error_code)
        was_elsewhere = code is not ErrorCode.NONE and self._replicas.drop(partition)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and was_elsewhere:
            raise RetriableFailure("the replica does not have the offset", **partition._asdict())
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise await self._lost_error(partition, offset)
        if code is ErrorCode.CORRUPT_MESSAGE:
            raise CorruptLog("the log has found one of its batches damaged", **partition._asdict())
        self._cluster.check(code, partition)

    async def _lost_error(self, partition: TopicPartition, offset: int) -> PositionLost:
        start = (await self._offsets.find([partition], EARLIEST))[partition].offset
        end = (await self._offsets.find([partition], LATEST))[partition].offset
        facts = {**partition._asdict(), "offset": offset, "start": start, "end": end}
        if offset < start:
            return PositionLost(
                "the log no longer has that offset",
                hint="rebuild from another copy, or go on from the log's start",
                **facts,
            )
        return PositionLost(
            "the reader is ahead of the log",
            hint="the log was truncated or replaced; rebuild everything that was read from it",
            **facts,
        )


def _visible(
    line: PartitionData, partition: TopicPartition, offset: int, isolation: Isolation
) -> Fetched:
    data = memoryview(b"") if line.records is None else line.records
    if not is_readable(data):
        raise UnreadableBatch(
            "the log has a record batch of another format than 2",
            hint="Kafka before 0.11 wrote older ones: copy the topic with a client that reads them",
            **partition._asdict(),
            offset=offset,
        )
    if isolation is Isolation.UNCOMMITTED:
        return whole_batches(partition, data, offset)
    aborted = [
        AbortedRange(each.first_offset, each.producer_id)
        for each in line.aborted_transactions or ()
    ]
    return committed_batches(partition, data, offset, aborted)


NOTHING, NO_REPLICA = memoryview(b""), -1
MAGIC_AT = 16


class AbortedRange(NamedTuple):
    """An aborted transaction: its batches begin at `first_offset`."""

    first_offset: int
    producer_id: int


def is_readable(data: memoryview) -> bool:
    """Whether a batch of format 2 can begin here, as far as it was received."""
    if len(data) >= HEADER_BYTES:
        return BatchHeader.read(data).is_plausible
    return len(data) <= MAGIC_AT or data[MAGIC_AT] == 2


def whole_batches(partition: TopicPartition, data: memoryview, offset: int) -> Fetched:
    """Removes the incomplete batch that a broker may send last; `offset` is where reading began."""
    position, next_offset = 0, offset
    while position + HEADER_BYTES <= len(data):
        header = BatchHeader.read(data, position)
        if not header.is_plausible or position + header.total_bytes > len(data):
            break
        position += header.total_bytes
        next_offset = header.next_offset
    return Fetched(partition, data[:position], max(next_offset, offset))


def committed_batches(
    partition: TopicPartition, data: memoryview, offset: int, aborted: Iterable[AbortedRange]
) -> Fetched:
    """Removes markers, and batches of the transactions that the broker lists as aborted.

    A producer is in an aborted transaction from its first offset to the marker that ends it, so one
    pass in offset order decides every batch.
    """
    spans = sorted(aborted, reverse=True)
    aborting: set[int] = set()
    kept: list[memoryview] = []
    start = position = 0  # the current run of visible batches
    next_offset = offset
    while position + HEADER_BYTES <= len(data):
        header = BatchHeader.read(data, position)
        end = position + header.total_bytes
        if not header.is_plausible or end > len(data):
            break
        while spans and spans[-1].first_offset <= header.last_offset:
            aborting.add(spans.pop().producer_id)
        if header.is_control or (header.is_transactional and header.producer_id in aborting):
            if header.is_control:
                aborting.discard(header.producer_id)
            kept.append(data[start:position])
            start = end
        position, next_offset = end, header.next_offset
    kept.append(data[start:position])
    found = _concat([part for part in kept if part])
    return Fetched(partition, found, max(next_offset, offset))


def _concat(parts: list[memoryview]) -> memoryview:
    if len(parts) <= 1:
        return parts[0] if parts else NOTHING
    return memoryview(b"".join(parts))


class ReadReplicas:
    """Brokers by partition; without one the leader is read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._named: dict[TopicPartition, tuple[int, float]] = {}
        self.count = 0
        """How often a leader has named one."""

    def use(
        self, leaders: Mapping[Node, list[TopicPartition]]
    ) -> Mapping[Node, list[TopicPartition]]:
        """Returns the partitions by the broker to read from."""
        if not self._named:
            return leaders
        found: dict[Node, list[TopicPartition]] = {}
        for leader, partitions in leaders.items():
            for each in partitions:
                found.setdefault(self._find(each) or leader, []).append(each)
        return found

    def _find(self, partition: TopicPartition) -> Node | None:
        node_id, until_s = self._named.get(partition, (-1, 0.0))
        if asyncio.get_running_loop().time() >= until_s:
            self._named.pop(partition, None)
            return None
        return self._cluster.node(node_id)

    def name(self, partition: TopicPartition, node_id: int) -> None:
        """Called when the leader sends us to another broker."""
        if self._cluster.node(node_id) is None:
            self._cluster.forget_topic(partition.topic)  # brokers are learnt with it
            raise RetriableFailure("the address of a broker is not known", node_id=node_id)
        self._named[partition] = (node_id, asyncio.get_running_loop().time() + LEASE_S)
        self.count += 1

    def drop(self, partition: TopicPartition) -> bool:
        """Returns to the leader; returns whether another broker was read."""
        return self._named.pop(partition, None) is not None
