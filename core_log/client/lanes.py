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

    A few may be under way at once. When one is lost, those behind it are refused as out of
    order; they are sent again once it has arrived. So such an answer is the log's last word
    only on a batch that was the oldest in flight when it was sent.

    A broker recognizes only a writer's last five batches when they come again. So a batch goes
    out only when it is that close to the oldest one that may have to.
    """

    def __init__(self, identity: ProducerIdentity, cluster: Cluster) -> None:
        self._identity, self._cluster = identity, cluster
        self._next_sequence = 0
        self._places = count()
        self._in_flight: dict[int, None] = {}  # in the order of their sequences
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
            await self._until_within(place, self._cluster.settings.batches_in_flight_max)
            return await self._arrive(place, memoryview(batch.data), send)
        finally:
            del self._in_flight[place]
            self._moved.set()

    async def _arrive(
        self, place: int, data: memoryview, send: Callable[[memoryview], Awaitable[int]]
    ) -> int:
        async def attempt() -> int:
            was_oldest = self._oldest == place
            try:
                return await send(data)
            except OutOfOrderSequence:
                if was_oldest:
                    raise
                await self._until_within(place, 1)
                raise TryAgain("an earlier batch has to arrive first") from None

        return await self._cluster.persist(attempt)

    @property
    def _oldest(self) -> int:
        return next(iter(self._in_flight))

    async def _until_within(self, place: int, window: int) -> None:
        while place - self._oldest >= window:
            self._moved.clear()
            await self._moved.wait()
