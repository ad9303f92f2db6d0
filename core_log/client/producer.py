"""Appends sealed batches to the leaders of their partitions, in order and unchanged in retries."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from typing import NamedTuple
from uuid import UUID

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.gather import together
from headwater.core_log.foundation.errors import HeadwaterError, OutOfOrderSequence
from headwater.core_log.links.connection import ConnectionLost, RetriableFailure
from headwater.core_log.links.node import Node
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.core_log.records.batch_header import Batch, seal

ALL_IN_SYNC, UNANSWERED = -1, 0
BEFORE_IMPLICIT_ADD = 11
"""The last version of Produce in which a transaction names its partitions beforehand (KIP-890)."""

SEQUENCE_MASK = 0x7FFFFFFF  # sequences wrap from 2^31 - 1 to 0

Sealed = Mapping[TopicPartition, memoryview]
BatchResult = int | RetriableFailure | HeadwaterError
"""The result of one batch: its base offset, or the error."""

SendBatches = Callable[[Sealed], Awaitable[Mapping[TopicPartition, BatchResult]]]


async def append_once(
    cluster: Cluster,
    batches: Sealed,
    *,
    acks: int = ALL_IN_SYNC,
    transactional_id: str | None = None,
    version_max: int | None = None,
) -> Mapping[TopicPartition, BatchResult]:
    """Makes one attempt, with one request per broker that leads some of the partitions. The base
    offset is -1 if no answer was requested."""

    async def append_to(
        node: Node, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BatchResult]:
        theirs = {partition: batches[partition] for partition in partitions}
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=cluster.settings.request_wait_ms_max,
            topic_data=_topic_data(cluster, theirs),
        )
        try:
            if acks == UNANSWERED:
                await node.tell(request, version_max=version_max)
                return dict.fromkeys(theirs, -1)
            said = await node.ask(request, version_max=version_max)
        except ConnectionLost as lost:
            for topic, _ in theirs:
                cluster.forget_topic(topic)
            return dict.fromkeys(theirs, lost)
        return _outcomes(cluster, request, said)

    leaders = (await cluster.leaders(batches)).items()
    outcomes: dict[TopicPartition, BatchResult] = {}
    for each in await together([append_to(*leader) for leader in leaders]):
        outcomes |= each
    return outcomes


async def append_plainly(
    cluster: Cluster, partition: TopicPartition, batch: memoryview, *, acks: int
) -> int:
    """Appends without a producer id: a lost answer leads to a second copy (at least once)."""

    async def attempt() -> int:
        outcomes = await append_once(cluster, {partition: batch}, acks=acks)
        outcome = outcomes[partition]
        if isinstance(outcome, int):
            return outcome
        raise outcome

    return await cluster.persist(attempt)


def _topic_data(cluster: Cluster, batches: Sealed) -> list[TopicProduceData]:
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, partition), batch in batches.items():
        part = PartitionProduceData(index=partition, records=batch)
        topics.setdefault(topic, []).append(part)
    return [
        TopicProduceData(name=topic, topic_id=cluster.topic_id(topic), partition_data=parts)
        for topic, parts in topics.items()
    ]


def _outcomes(
    cluster: Cluster, asked: ProduceRequest, said: ProduceResponse
) -> dict[TopicPartition, BatchResult]:
    names: dict[str | UUID, str] = {}  # newer brokers answer by id, without the name
    found: dict[TopicPartition, BatchResult] = {}
    for topic in asked.topic_data:
        names[topic.name] = names[topic.topic_id] = topic.name
        for part in topic.partition_data:
            found[TopicPartition(topic.name, part.index)] = RetriableFailure(
                "the broker's answer has no result for the batch"
            )
    for answered in said.responses:
        name = names.get(answered.name or answered.topic_id)
        if name is None:
            continue
        for answer in answered.partition_responses:
            partition = TopicPartition(name, answer.index)
            try:
                cluster.check(answer.error_code, partition, answer.error_message)
                found[partition] = answer.base_offset
            except (RetriableFailure, HeadwaterError) as refusal:
                found[partition] = refusal
    return found


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class ProducerSequences:
    """The sequences of one producer, per partition.

    Batches that are appended together are sent together, when each one's partition allows it.
    Failed ones are sent again, together as well.
    """

    def __init__(self, identity: ProducerIdAndEpoch, cluster: Cluster) -> None:
        self._identity, self._cluster = identity, cluster
        self._lanes: dict[TopicPartition, PartitionSequence] = {}

    async def append(
        self, batches: Mapping[TopicPartition, Batch], send: SendBatches
    ) -> dict[TopicPartition, int]:
        """Returns the base offsets from `send`."""
        left = {
            partition: self._lane(partition).enter(batch, self._identity)
            for partition, batch in batches.items()
        }
        data = {partition: memoryview(batch.data) for partition, batch in batches.items()}
        done: dict[TopicPartition, int] = {}
        try:
            await self._cluster.persist(lambda: self._attempt(left, data, done, send))
        finally:
            for partition, number in left.items():
                self._lanes[partition].leave(number)
        return done

    def _lane(self, partition: TopicPartition) -> "PartitionSequence":
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = PartitionSequence(
                self._cluster.settings.batches_in_flight_max
            )
        return lane

    async def _attempt(
        self,
        left: dict[TopicPartition, int],
        data: Sealed,
        done: dict[TopicPartition, int],
        send: SendBatches,
    ) -> None:
        """Moves finished batches from `left`, which has their numbers, to `done`, until nothing is
        left."""
        lanes = self._lanes
        while left:
            while held_up := [at for at, number in left.items() if not lanes[at].may_go(number)]:
                await lanes[held_up[0]].until_it_may_go(left[held_up[0]])
            were_oldest = {at for at, number in left.items() if number == lanes[at].oldest}
            try:
                outcomes = await send({partition: data[partition] for partition in left})
            except RetriableFailure as again:
                outcomes = dict.fromkeys(left, again)
            failure: RetriableFailure | HeadwaterError | None = None
            for partition, outcome in outcomes.items():
                lane = lanes[partition]
                if isinstance(outcome, int):
                    done[partition] = outcome
                    lane.is_begun = True
                    lane.leave(left.pop(partition))
                    continue
                is_out_of_order = isinstance(outcome, OutOfOrderSequence)
                if is_out_of_order or isinstance(outcome, RetriableFailure):
                    lane.is_in_trouble = True
                is_final = not is_out_of_order or partition in were_oldest
                if is_final and (failure is None or isinstance(failure, RetriableFailure)):
                    failure = outcome
            if failure is not None:
                raise failure


class PartitionSequence:
    """The batches of one partition from one producer.

    A few may be in flight. When one fails, those after it are refused as out of order: they are
    sent again one by one, oldest first, and new ones wait. So "out of order" is final only for a
    batch that was the oldest when it was sent.

    A broker recognizes only a producer's last five batches in a retry. So a batch is sent only if
    it is that close to the oldest one that may be repeated.

    A batch may overtake an older one that waits for its leader or for another partition. A log with
    batches of this producer then refuses it; a log without any accepts any sequence as the first,
    and would refuse the older one for good. So the first batch is sent alone.
    """

    def __init__(self, in_flight_max: int) -> None:
        self._in_flight_max = in_flight_max
        self.next_sequence = 0
        self._numbers = count()
        self._in_flight: dict[int, None] = {}  # in the order of their sequences
        self.is_begun = self.is_in_trouble = False
        self._moved = asyncio.Event()

    def enter(self, batch: Batch, identity: ProducerIdAndEpoch) -> int:
        """Seals the batch under the next sequence; returns its number in the lane."""
        seal(
            batch.data,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self.next_sequence,
            is_transactional=True,
        )
        self.next_sequence = (self.next_sequence + batch.record_count) & SEQUENCE_MASK
        number = next(self._numbers)
        self._in_flight[number] = None
        return number

    def leave(self, number: int) -> None:
        del self._in_flight[number]
        self.is_in_trouble = self.is_in_trouble and bool(self._in_flight)
        self._moved.set()

    def may_go(self, number: int) -> bool:
        ahead = number - self.oldest
        is_free = self.is_begun and not self.is_in_trouble
        return ahead == 0 or (is_free and ahead < self._in_flight_max)

    async def until_it_may_go(self, number: int) -> None:
        while not self.may_go(number):
            self._moved.clear()
            await self._moved.wait()

    @property
    def oldest(self) -> int:
        return next(iter(self._in_flight))
