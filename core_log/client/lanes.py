"""A writer's batches in flight: sequences in order per partition, the same bytes when repeated."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from core_log.batch import Batch, seal
from core_log.client.cluster import Cluster
from core_log.client.retrying import TryAgain
from core_log.errors import OutOfOrderSequence

SEQUENCE_MASK = 0x7FFFFFFF  # sequences go from 2^31 - 1 to 0


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


class Place:
    """A batch's place in its lane; identity is what tells two of them apart."""


class Lane:
    """The batches of one partition under one identity.

    A few may be under way at once. When one is lost, those behind it are refused as out of
    order; they are sent again once it has arrived. So such an answer is the log's last word
    only on a batch that was the oldest in flight when it was sent.
    """

    def __init__(self, identity: ProducerIdentity, cluster: Cluster) -> None:
        self._identity, self._cluster = identity, cluster
        self._next_sequence = 0
        self._free = asyncio.Semaphore(cluster.settings.batches_in_flight_max)
        self._in_flight: deque[Place] = deque()
        self._moved = asyncio.Event()

    async def append(
        self,
        batch: Batch,
        send: Callable[[memoryview], Awaitable[int]],
        *,
        is_transactional: bool,
    ) -> int:
        """Returns the base offset that `send` was told."""
        async with self._free:
            seal(
                batch.data,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                base_sequence=self._next_sequence,
                is_transactional=is_transactional,
            )
            self._next_sequence = (self._next_sequence + batch.record_count) & SEQUENCE_MASK
            place = Place()
            self._in_flight.append(place)
            try:
                return await self._arrive(place, memoryview(batch.data), send)
            finally:
                self._in_flight.remove(place)
                self._moved.set()

    async def _arrive(
        self, place: Place, data: memoryview, send: Callable[[memoryview], Awaitable[int]]
    ) -> int:
        async def attempt() -> int:
            was_oldest = self._in_flight[0] is place
            try:
                return await send(data)
            except OutOfOrderSequence:
                if was_oldest:
                    raise
                await self._become_oldest(place)
                raise TryAgain("an earlier batch has to arrive first") from None

        return await self._cluster.persist(attempt)

    async def _become_oldest(self, place: Place) -> None:
        while self._in_flight[0] is not place:
            self._moved.clear()
            await self._moved.wait()
