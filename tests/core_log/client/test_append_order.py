"""Appends of one transaction to a partition come in the order in which they were begun."""

import asyncio
from types import SimpleNamespace
from typing import Any

from core_log.batch import Batch
from core_log.client.lanes import ProducerIdentity
from core_log.client.transaction import KafkaTransaction
from core_log.log import TopicPartition

HOME = TopicPartition("t", 0)


class Lane:
    def __init__(self) -> None:
        self.taken: list[int] = []

    async def append(self, batch: Batch, send: object, *, is_transactional: bool) -> int:
        self.taken.append(batch.record_count)
        return 0


async def test_nobody_passes_those_who_wait_until_the_partition_is_announced() -> None:
    lane, is_announced = Lane(), asyncio.Event()

    async def add_partition(identity: object, partition: object) -> None:
        await is_announced.wait()

    coordinator: Any = SimpleNamespace(renews_epochs=False, add_partition=add_partition)
    cluster: Any = SimpleNamespace()
    found: Any = lane
    transaction = KafkaTransaction(
        "w",
        ProducerIdentity(1, 0),
        lanes=lambda _: found,
        coordinator=coordinator,
        cluster=cluster,
    )

    async def append(*numbers: int) -> None:
        for number in numbers:
            await transaction.append(HOME, Batch(bytearray(), number))

    async with asyncio.TaskGroup() as group:
        group.create_task(append(1, 3))
        group.create_task(append(2))
        await asyncio.sleep(0)
        is_announced.set()

    assert lane.taken == [1, 2, 3]
