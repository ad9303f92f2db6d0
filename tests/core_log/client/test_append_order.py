"""Appends of one transaction to a partition come in the order in which they were begun."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from headwater.core_log.client.producer import ProducerIdAndEpoch
from headwater.core_log.client.writer import KafkaTransaction
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch

HOME, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1)


class Lanes:
    def __init__(self) -> None:
        self.taken: list[int] = []

    async def append(
        self, batches: Mapping[TopicPartition, Batch], send: object
    ) -> dict[TopicPartition, int]:
        self.taken.append(batches[HOME].record_count)
        return dict.fromkeys(batches, 0)


async def test_nobody_passes_those_who_wait_until_the_partition_is_announced() -> None:
    lanes, is_announced = Lanes(), asyncio.Event()

    async def add_partition(identity: object, partition: object) -> None:
        await is_announced.wait()

    coordinator: Any = SimpleNamespace(renews_epochs=False, add_partition=add_partition)
    cluster: Any = SimpleNamespace()
    found: Any = lanes
    transaction = KafkaTransaction(
        "w", ProducerIdAndEpoch(1, 0), lanes=found, coordinator=coordinator, cluster=cluster
    )

    def batch(number: int) -> Batch:
        return Batch(bytearray(), number)

    async def append(*numbers: int) -> None:
        for number in numbers:
            await transaction.append(HOME, batch(number))

    async with asyncio.TaskGroup() as group:
        group.create_task(append(1, 3))
        group.create_task(transaction.append_each({HOME: batch(2), ELSEWHERE: batch(2)}))
        group.create_task(append(4))
        await asyncio.sleep(0)
        is_announced.set()

    assert lanes.taken == [1, 2, 4, 3]
