"""A writer's batches in flight: sequences in order per partition, and unchanged bytes in
retries."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import NamedTuple

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.foundation.errors import HeadwaterError, OutOfOrderSequence
from headwater.core_log.links.connection import RetriableFailure
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch, seal

SEQUENCE_MASK = 0x7FFFFFFF  # sequences wrap from 2^31 - 1 to 0

Sealed = Mapping[TopicPartition, memoryview]
BatchResult = int | RetriableFailure | HeadwaterError
"""The result of one batch: its base offset, or the error."""

SendBatches = Callable[[Sealed], Awaitable[Mapping[TopicPartition, BatchResult]]]


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
        done: dict[TopicPartition, int] = {}
        try:
            await self._cluster.persist(lambda: self._attempt(left, done, send))
        finally:
            for passage in left.values():
                passage.leave()
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
        left: "dict[TopicPartition, InFlightBatch]",
        done: dict[TopicPartition, int],
        send: SendBatches,
    ) -> None:
        """Moves finished batches from `left` to `done`, until nothing is left."""
        while left:
            while held_up := [each for each in left.values() if not each.may_go]:
                await held_up[0].until_it_may_go()
            were_oldest = {partition for partition, each in left.items() if each.is_oldest}
            try:
                outcomes = await send({partition: each.data for partition, each in left.items()})
            except RetriableFailure as again:
                outcomes = dict.fromkeys(left, again)
            failure: RetriableFailure | HeadwaterError | None = None
            for partition, outcome in outcomes.items():
                if isinstance(outcome, int):
                    done[partition] = outcome
                    left[partition].lane.is_begun = True
                    left.pop(partition).leave()
                    continue
                is_out_of_order = isinstance(outcome, OutOfOrderSequence)
                if is_out_of_order or isinstance(outcome, RetriableFailure):
                    left[partition].lane.is_in_trouble = True
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

    def enter(self, batch: Batch, identity: ProducerIdAndEpoch) -> "InFlightBatch":
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
        return InFlightBatch(self, number, memoryview(batch.data))

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


class InFlightBatch(NamedTuple):
    """One batch, from its sequence to the log's answer."""

    lane: PartitionSequence
    number: int
    data: memoryview

    @property
    def is_oldest(self) -> bool:
        return self.number == self.lane.oldest

    @property
    def may_go(self) -> bool:
        return self.lane.may_go(self.number)

    async def until_it_may_go(self) -> None:
        await self.lane.until_it_may_go(self.number)

    def leave(self) -> None:
        self.lane.leave(self.number)
