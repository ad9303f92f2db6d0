"""A writer's batches in flight: sequences in order per partition, the same bytes when repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple

from core_log.batch import Batch, seal
from core_log.client.cluster import Cluster
from core_log.client.retrying import TryAgain
from core_log.errors import OutOfOrderSequence

SEQUENCE_MASK = 0x7FFFFFFF  # sequences go from 2^31 - 1 to 0


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


class Lane:
    """The batches of one partition under one identity.

    A few may be under way at once. When one fails, those behind it are refused as out of order:
    they go out again one by one, oldest first, and new ones wait until all is well. So "out of
    order" is the log's last word only on a batch that was the oldest when it was sent.

    A broker recognizes only a writer's last five batches when they come again. So a batch goes
    out only when it is that close to the oldest one that may have to.
    """

    def __init__(self, identity: ProducerIdentity, cluster: Cluster) -> None:
        self._identity, self._cluster = identity, cluster
        self._next_sequence = 0
        self._places = count()
        self._in_flight: dict[int, None] = {}  # in the order of their sequences
        self._is_in_trouble = False
        self._moved = asyncio.Event()

    async def append(
        self,
        batch: Batch,
        send: Callable[[memoryview], Awaitable[int]],
        *,
        is_transactional: bool,
    ) -> int:
        """Returns the base offset that `send` was told."""
        seal(
            batch.data,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._next_sequence,
            is_transactional=is_transactional,
        )
        self._next_sequence = (self._next_sequence + batch.record_count) & SEQUENCE_MASK
        place = next(self._places)
        self._in_flight[place] = None
        try:
            data = memoryview(batch.data)
            return await self._cluster.persist(lambda: self._attempt(place, data, send))
        finally:
            del self._in_flight[place]
            self._is_in_trouble = self._is_in_trouble and bool(self._in_flight)
            self._moved.set()

    async def _attempt(
        self, place: int, data: memoryview, send: Callable[[memoryview], Awaitable[int]]
    ) -> int:
        while True:
            await self._until_it_may_go(place)
            was_oldest = self._is_oldest(place)
            try:
                return await send(data)
            except TryAgain:
                self._is_in_trouble = True
                raise
            except OutOfOrderSequence:
                self._is_in_trouble = True
                if was_oldest:
                    raise

    async def _until_it_may_go(self, place: int) -> None:
        window = self._cluster.settings.batches_in_flight_max
        while not self._is_oldest(place) and (
            self._is_in_trouble or place - next(iter(self._in_flight)) >= window
        ):
            self._moved.clear()
            await self._moved.wait()

    def _is_oldest(self, place: int) -> bool:
        return next(iter(self._in_flight)) == place
