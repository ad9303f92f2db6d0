"""Appends follow each other without waiting for answers, in order, and not too many at once."""

import asyncio
from collections.abc import Sequence

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.pipelines.journal.commits import commits_home, decode_commits
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.journal.schemas import schemas_home
from headwater.pipelines.loops.ingest import ingest
from headwater.pipelines.loops.thread_offload import PART_ROWS_MIN
from tests.memory_log import Fuse, MemoryTransaction
from tests.pipelines.pipeline_in_memory import PIPELINE, Change, World

ORDERS = TopicPartition("shop.public.orders", 0)
SCHEMAS = schemas_home(ORDERS.topic)
BATCHES = 6
ROWS = 3
WHILE_S = 0.01


class Slow:
    """Answers appends of data and of schemas late, and counts how many wait at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.waiting = self.most = 0
        self.is_beside_schema = False
        append = MemoryTransaction.append

        async def late(
            transaction: MemoryTransaction, partition: TopicPartition, batch: Batch
        ) -> int:
            first = await append(transaction, partition, batch)
            if partition not in (ORDERS, SCHEMAS):
                return first
            self.sizes += [len(batch.data)] * (partition == ORDERS)
            self.is_beside_schema |= partition == SCHEMAS and self.waiting > 0
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            try:
                await asyncio.sleep(WHILE_S)
            finally:
                self.waiting -= 1
            return first

        monkeypatch.setattr(MemoryTransaction, "append", late)


def script() -> list[list[Sequence[Change]]]:
    """One transaction of the source in several batches."""
    return [
        [
            [("orders", "c", place * ROWS + row, "x") for row in range(ROWS)]
            for place in range(BATCHES)
        ]
    ]


async def ingested(world: World) -> None:
    for topic in internal_topics(history_ms=1_000):
        await world.log.ensure_topic(topic)
    await world.ingest(Fuse())


def keys(world: World) -> list[bytes]:
    entries = [each for each in world.log.partitions[ORDERS].entries if each.data]
    return [key for each in entries for key in arrow_codec.decode(each.data).keys.to_pylist()]


async def test_appends_go_out_beside_each_other_and_stay_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, slow = World(script()), Slow(monkeypatch)

    await ingested(world)

    assert keys(world) == [b'{"id":%d}' % number for number in range(BATCHES * ROWS)]
    assert slow.most > 1
    assert not slow.is_beside_schema
    [boundary] = [
        commit
        for entry in world.log.partitions[commits_home(PIPELINE)].entries
        if entry.data
        for _, commit in decode_commits(arrow_codec.decode(entry.data), PIPELINE)
    ]
    stretch = boundary.touched[ORDERS]
    assert (stretch.first, stretch.end) == (0, BATCHES * ROWS)
    assert (stretch.records, stretch.bytes) == (BATCHES * ROWS, sum(slow.sizes))


async def test_no_more_is_under_way_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "IN_FLIGHT_BYTES_MAX", 1)
    world, slow = World(script()), Slow(monkeypatch)

    await ingested(world)

    assert keys(world) == [b'{"id":%d}' % number for number in range(BATCHES * ROWS)]
    assert slow.most == 1


async def test_an_append_that_fails_ends_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, slow = World(script()), Slow(monkeypatch)
    late, places = MemoryTransaction.append, list[str]()

    async def failing(
        transaction: MemoryTransaction, partition: TopicPartition, batch: Batch
    ) -> int:
        if partition == ORDERS:
            places.append("data")
            if len(places) == 2:
                raise ConnectionError("gone")
        return await late(transaction, partition, batch)

    monkeypatch.setattr(MemoryTransaction, "append", failing)

    with pytest.raises(ConnectionError):
        await ingested(world)

    assert not slow.waiting
    assert world.log.partitions[ORDERS].stable == world.log.partitions[ORDERS].end
    assert not [
        each
        for each in world.log.partitions[ORDERS].entries
        if each.transaction is not None and each.transaction.outcome
    ]
    assert world.source.acknowledged == 0


async def test_encoding_beside_an_append_that_fails_ends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World([[[("orders", "c", key, "x" * 20) for key in range(3 * PART_ROWS_MIN)]]])
    append = MemoryTransaction.append

    async def failing(
        transaction: MemoryTransaction, partition: TopicPartition, batch: Batch
    ) -> int:
        if partition == ORDERS:
            raise ConnectionError("gone")
        return await append(transaction, partition, batch)

    monkeypatch.setattr(MemoryTransaction, "append", failing)

    with pytest.raises(ConnectionError):
        await ingested(world)

    assert asyncio.all_tasks() == {asyncio.current_task()}
