"""One transaction under way: what its block appends and commits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from headwater.core_log.client.batch_sender import BEFORE_IMPLICIT_ADD, append_once
from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.producer_sequences import (
    BatchResult,
    ProducerIdAndEpoch,
    ProducerSequences,
    Sealed,
)
from headwater.core_log.client.transactions import CoordinatorClient
from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.model.log import Offsets, TopicPartition
from headwater.core_log.records.batch_header import Batch

A = TypeVar("A", TopicPartition, str)


class KafkaTransaction:
    """Ended by its writer, and of no use afterwards. Appends may run side by side; those to one
    partition are in the log in the order in which they were begun."""

    def __init__(
        self,
        name: str,
        identity: ProducerIdAndEpoch,
        *,
        lanes: ProducerSequences,
        coordinator: CoordinatorClient,
        cluster: Cluster,
    ) -> None:
        self._name, self._identity, self._lanes = name, identity, lanes
        self._coordinator, self._cluster = coordinator, cluster
        self._announced: set[TopicPartition | str] = set()
        self._announcing = asyncio.Lock()
        self._is_open = True
        self._steps = 0  # under way just now
        self.is_begun = False  # whether the coordinator may have heard of it
        self.failure: BaseException | None = None  # of its first step that failed

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        return (await self.append_each({partition: batch}))[partition]

    async def append_each(
        self, batches: Mapping[TopicPartition, Batch]
    ) -> Mapping[TopicPartition, int]:
        with self._step():
            await self._announce(
                batches, lambda each: self._coordinator.add_partition(self._identity, each)
            )
            return await self._lanes.append(batches, self._send)

    async def commit_offsets(self, group: str, offsets: Offsets) -> None:
        with self._step():
            await self._announce(
                [group], lambda each: self._coordinator.add_group(self._identity, each)
            )
            await self._coordinator.commit_offsets(self._identity, group, offsets)

    def close(self) -> None:
        """Nothing can be added any more."""
        self._is_open = False
        if self._steps and self.failure is None:
            self.failure = LogRejected(
                "the transaction ended before a step of it", hint="await every append inside it"
            )

    @contextmanager
    def _step(self) -> Iterator[None]:
        if not self._is_open:
            raise LogRejected("the transaction has ended", hint="append inside its block")
        self.is_begun = True
        self._steps += 1
        try:
            yield
        except BaseException as error:
            self.failure = self.failure or error
            raise
        finally:
            self._steps -= 1

    async def _announce(
        self, wanted: Iterable[A], announce: Callable[[A], Awaitable[None]]
    ) -> None:
        """Tells the coordinator beforehand, where it does not learn of them by itself."""
        if self._coordinator.renews_epochs:
            return
        async with self._announcing:  # also of what is: nobody passes those who wait for it
            for each in wanted:
                if each not in self._announced:
                    await announce(each)
                    self._announced.add(each)

    async def _send(self, batches: Sealed) -> Mapping[TopicPartition, BatchResult]:
        return await append_once(
            self._cluster,
            batches,
            transactional_id=self._name,
            version_max=None if self._coordinator.renews_epochs else BEFORE_IMPLICIT_ADD,
        )
