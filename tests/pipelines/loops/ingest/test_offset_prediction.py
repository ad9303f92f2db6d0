"""A boundary that is written before the log has said where its data is, says the truth."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.changes import ChangeBatch, Positions, TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import Column
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.pipelines.journal.commits import (
    OffsetRange,
    commits_home,
    decode_commits,
    small_batch,
)
from headwater.pipelines.journal.internal_topics import internal_topics, read_decided
from headwater.pipelines.journal.schemas import SchemaReader
from headwater.pipelines.loops.ingest import speculative_commit
from tests.memory_log import Entry, Fuse, MemoryTransaction
from tests.pipelines.pipeline_in_memory import PIPELINE, ScriptedSource, Transaction, World

ORDERS = TopicPartition("shop.public.orders", 0)
SCRIPT = [[[("orders", "c", number, "new")]] for number in range(4)]
NONE, ALL = Fuse(), len(SCRIPT)


class OneByOne(ScriptedSource):
    """Each transaction has come into the log before the next one is made."""

    def __init__(
        self, between: Callable[[int], Awaitable[object]], script: Sequence[Transaction] = SCRIPT
    ) -> None:
        super().__init__(script, NONE)
        self._between, self._has_come = between, asyncio.Event()

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        async for batch in super().changes(resume_from):
            self._has_come.clear()
            yield batch
            if batch.positions:
                await self._has_come.wait()
                await self._between(self.acknowledged)

    async def acknowledge(self, positions: Positions) -> None:
        await super().acknowledge(positions)
        self._has_come.set()


def entries(world: World, *, is_committed: bool) -> list[Entry]:
    return [
        each
        for each in world.log.partitions[ORDERS].entries
        if each.transaction is not None and each.transaction.outcome is is_committed
    ]


def told(world: World) -> list[OffsetRange]:
    """Where the data is, by the boundaries."""
    committed = [
        each.data
        for each in world.log.partitions[commits_home(PIPELINE)].entries
        if each.transaction is not None and each.transaction.outcome
    ]
    return [
        commit.touched[ORDERS]
        for data in committed
        for _, commit in decode_commits(arrow_codec.decode(data), PIPELINE)
    ]


async def prepared() -> World:
    world = World([])
    await world.run(NONE)
    return world


async def nothing(number: int) -> None:
    pass


def appending(world: World, after: Set[int]) -> Callable[[int], Awaitable[object]]:
    """Somebody else appends to the same topic after these of our transactions."""

    async def append(number: int) -> None:
        if number in after:
            await world.log.append(ORDERS, small_batch([(b"theirs", b"{}")], now_ms=1))

    return append


def watch_appends(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Per append of data: whether its transaction's boundary takes the same way."""
    plain, found = MemoryTransaction.append_each, list[bool]()

    async def watched(
        self: MemoryTransaction, batches: Mapping[TopicPartition, Batch]
    ) -> Mapping[TopicPartition, int]:
        if ORDERS in batches:
            found.append(commits_home(PIPELINE) in batches)
        return await plain(self, batches)

    monkeypatch.setattr(MemoryTransaction, "append_each", watched)
    return found


async def test_a_boundary_is_written_beside_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await prepared()
    were_beside = watch_appends(monkeypatch)

    await world.ingest_from(OneByOne(nothing))

    assert were_beside == [False, True, True, True], "of the first one nothing is known yet"
    places = [(each.first, each.end) for each in entries(world, is_committed=True)]
    assert [(each.first, each.end) for each in told(world)] == places
    assert len(places) == ALL


async def test_data_that_lies_elsewhere_is_written_anew_with_its_boundary() -> None:
    world = await prepared()

    await world.ingest_from(OneByOne(appending(world, {2, 3, 4})))

    places = [(each.first, each.end) for each in entries(world, is_committed=True)]
    assert [(each.first, each.end) for each in told(world)] == places
    assert len(places) == ALL
    assert len(entries(world, is_committed=False)) == 1, "it is not foreseen there any more"


async def test_a_writer_that_never_rests_is_never_in_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between what is of one transaction as well, and when it is written anew."""
    world, plain = await prepared(), MemoryTransaction.append_each
    script = [[[("orders", "c", 2 * at + each, "new")] for each in (0, 1)] for at in range(ALL)]

    async def after_theirs(
        self: MemoryTransaction, batches: Mapping[TopicPartition, Batch]
    ) -> Mapping[TopicPartition, int]:
        if ORDERS in batches:
            await world.log.append(ORDERS, small_batch([(b"theirs", b"{}")], now_ms=1))
        return await plain(self, batches)

    await world.ingest_from(OneByOne(nothing, script[:2]))
    monkeypatch.setattr(MemoryTransaction, "append_each", after_theirs)
    await world.ingest_from(OneByOne(nothing, script))

    ours = entries(world, is_committed=True)
    assert [each.records for each in told(world)] == [2] * ALL
    for stretch in told(world):
        within = [each for each in ours if stretch.first <= each.first < stretch.end]
        assert (within[0].first, within[-1].end) == (stretch.first, stretch.end)
        assert len(within) == 2


class Changing(OneByOne):
    """The third transaction brings a new column."""

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        number = 0
        async for batch in super().changes(resume_from):
            number += bool(batch.tables)
            wider = tuple(map(with_column, batch.tables)) if number >= 3 else batch.tables
            yield replace(batch, tables=wider)


def with_column(changes: TableChanges) -> TableChanges:
    schema = replace(changes.schema, columns=(*changes.schema.columns, Column("more", pa.int64())))
    rows = changes.rows.append_column("more", pa.nulls(len(changes), pa.int64()))
    return replace(changes, schema=schema, rows=rows)


async def test_a_transaction_with_a_new_schema_is_never_written_twice() -> None:
    """The second time the schema would be missing, as it counts as written."""
    world = await prepared()

    await world.ingest_from(Changing(appending(world, {2})))

    places = [(each.first, each.end) for each in entries(world, is_committed=True)]
    assert [(each.first, each.end) for each in told(world)] == places
    assert len(places) == ALL
    stored = await SchemaReader(world.log).find(ORDERS.topic, 2)
    assert "more" in stored.schema.names


async def test_a_transaction_too_large_to_be_kept_waits_for_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await prepared()
    were_beside = watch_appends(monkeypatch)
    monkeypatch.setattr(speculative_commit, "KEPT_BYTES_MAX", 0)

    await world.ingest_from(OneByOne(nothing))

    assert were_beside == [False] * ALL
    places = [(each.first, each.end) for each in entries(world, is_committed=True)]
    assert [(each.first, each.end) for each in told(world)] == places


async def test_a_broker_is_told_the_truth_as_well(tmp_path: Path) -> None:
    """With the markers of its own transactions, among what others append and abort."""
    settings = BrokerSettings(data=tmp_path, listen="127.0.0.1:0", internal_partitions=1)
    log, world = await EmbeddedLog.open(settings), World([])
    world.log = log  # type: ignore[assignment]
    for topic in internal_topics(history_ms=1_000):
        await log.ensure_topic(topic)

    await world.ingest_from(OneByOne(appending(world, {2})))

    found = [each async for each in read_decided(log, ORDERS)]
    keys = [(each.offsets.tolist(), each.keys.to_pylist()) for each in found]
    ours = [
        offset
        for offsets, theirs in keys
        for offset, key in zip(offsets, theirs, strict=True)
        if key != b"theirs"
    ]
    boundaries = [each async for each in read_decided(log, commits_home(PIPELINE))]
    commits = [commit for each in boundaries for _, commit in decode_commits(each, PIPELINE)]
    assert [each.touched[ORDERS].first for each in commits] == ours == [0, 2, 7, 9]
    await log.close()
