"""Wherever a crash comes, the target ends equal to the source, and nothing was applied twice."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import PositionLost, SinkRejected, SinkUnavailable
from headwater.core_log.model.changes import ChangeBatch, Positions, TableChanges
from headwater.core_log.model.log import FetchLimit, Isolation, Offsets, TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.deliver.deliver import deliver
from headwater.pipelines.loops.deliver.slice_reader import SliceReader
from headwater.pipelines.loops.ingest.ingest import OPEN_MS_MAX
from headwater.pipelines.loops.ingest.table_topics import TopicRules
from headwater.pipelines.reports import (
    OffsetsApplied,
    RowsMoved,
    StateChanged,
    TableKnown,
    TaskState,
)
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, Heard, Slice, Truncate
from tests.memory_log import Crash, Fuse, MemoryLog
from tests.pipelines.pipeline_in_memory import (
    Change,
    MemorySink,
    MemoryTarget,
    ScriptedSource,
    Transaction,
    Unrouted,
    World,
    fold,
    schema_of,
)

TABLES, KEYS = ("orders", "customers"), (1, 2, 3)
CHANGES = st.tuples(
    st.sampled_from(TABLES), st.sampled_from("ccuudt"), st.sampled_from(KEYS), st.text(max_size=3)
)
BATCHES = st.lists(CHANGES, min_size=1, max_size=4)
SCRIPTS = st.lists(st.lists(BATCHES, min_size=1, max_size=3), min_size=1, max_size=5)
CRASHES = st.lists(st.tuples(st.integers(1, 90), st.booleans()), max_size=6)


class OnlyShapes:
    """Knows shapes of tables, and is asked for nothing else."""

    async def schemas(self, topic: str) -> Sequence[TableSchema]:
        return [schema_of(topic.rpartition(".")[2])]

    async def truncates(self, start: AppliedOffsets, end: AppliedOffsets) -> Sequence[Truncate]:
        raise NotImplementedError

    def read(
        self, start: AppliedOffsets, end: AppliedOffsets, heard: Heard = lambda _: None
    ) -> Any:
        raise NotImplementedError


class ImpatientLog:
    """Asked for a partition more often than needed, it has had enough."""

    def __init__(self, log: MemoryLog, place: TopicPartition, *, fetches: int) -> None:
        self._log, self._place, self._left = log, place, fetches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def fetch(self, wanted: Offsets, *, limit: FetchLimit, isolation: Isolation) -> Any:
        self._left -= self._place in wanted
        assert self._left >= 0, "somebody waits for what will never come"
        return await self._log.fetch(wanted, limit=limit, isolation=isolation)


@settings(deadline=None)
@given(script=SCRIPTS, crashes=CRASHES, partitions=st.sampled_from((1, 3)))
def test_the_target_equals_the_source_wherever_it_crashed(
    script: Sequence[Transaction], crashes: list[tuple[int, bool]], partitions: int
) -> None:
    world = World(script, partitions=partitions)

    for at, after in crashes:
        with suppress(Crash):
            asyncio.run(world.run(Fuse(at, after=after)))
    asyncio.run(world.run(Fuse()))

    assert without_empty(world.target.tables) == without_empty(fold(script))
    assert len(world.target.applied) == len(set(world.target.applied))
    assert world.source.acknowledged in (0, len(script))


@pytest.mark.slow
def test_every_operation_of_a_run_can_be_the_last() -> None:
    script = [[[("orders", "c", 1, "a"), ("customers", "c", 1, "b")], [("orders", "u", 1, "c")]]]
    whole = World(script)
    counting = Fuse()
    asyncio.run(whole.run(counting))

    for at in range(1, counting.count + 1):
        for after in (False, True):
            world = World(script)
            with pytest.raises(Crash):
                asyncio.run(world.run(Fuse(at, after=after)))
            asyncio.run(world.run(Fuse()))
            assert world.target.tables == fold(script)
            assert len(world.target.applied) == len(set(world.target.applied))


def test_a_source_transaction_of_many_batches_is_applied_as_a_whole() -> None:
    """However small the slices are to be."""
    batches: list[list[Change]] = [[("orders", "c", key, "x")] for key in range(20)]
    world = World([batches])
    asyncio.run(world.run(Fuse()))

    starts = [applied.next_offset for applied in world.target.offsets.values()]

    assert world.target.tables == fold([batches])
    assert sum("Moved" in type(report).__name__ for report in world.reports) == 2
    assert starts


def test_rows_that_a_sink_reads_elsewhere_are_reported_all_the_same() -> None:
    batch: list[Change] = [("orders", "c", key, "x") for key in range(5)]
    world = World([[batch], [[("orders", "u", 1, "y")]]])

    class FarSink(MemorySink):
        """Other processes read for it, so that no row comes through this one."""

        async def apply(self, part: Slice) -> None:
            far = SliceReader(world.log, after_log=Unrouted(), fetch_bytes=200, skipped=dict)
            [_ async for _ in far.read(part)]
            self.target.offsets |= part.end
            part.heard([*far.counts.values()])

    asyncio.run(world.run(Fuse(1 << 40)))
    world.target, world.reports = MemoryTarget(), []
    sink = FarSink(world.target, Fuse())
    asyncio.run(deliver(world.delivery(sink, records=1), until_end=True))

    moved = [each for each in world.reports if isinstance(each, RowsMoved)]
    assert {(each.task, each.table) for each in moved} == {("memory", "public.orders")}
    assert sum(each.rows for each in moved) == 6
    assert moved[-1].committed_ms == 1_000


def test_a_table_that_fails_where_its_rows_are_read_elsewhere_fails_alone() -> None:
    world = World([[[("orders", "c", 1, "a"), ("customers", "c", 1, "b")]]])
    asyncio.run(world.run(Fuse()))
    world.target = MemoryTarget()

    class ChoosySink(MemorySink):
        """Never looks at rows here, and will not have one of the tables."""

        async def apply(self, part: Slice) -> None:
            if any("orders" in each.topic for each in part.end):
                raise SinkRejected("the table belongs to another pipeline", table="public.orders")
            await super().apply(part)

    sink = ChoosySink(world.target, Fuse())
    delivery = world.delivery(sink, records=1, split_reader=OnlyShapes())
    asyncio.run(deliver(delivery, until_end=True))

    assert world.target.tables == {"customers": {1: "b"}}
    told = [each for each in world.reports if isinstance(each, StateChanged)]
    assert [each.table for each in told if each.state is TaskState.QUARANTINED] == ["public.orders"]


@pytest.mark.slow
async def test_nothing_is_read_on_for_a_sink_that_has_failed_in_the_middle_of_a_slice() -> None:
    world = World([[[("orders", "c", key, "x")]] for key in range(20)])
    await world.run(Fuse())
    world.target = MemoryTarget()

    class GivesUp(MemorySink):
        async def apply(self, part: Slice) -> None:
            async for _ in part.changes():
                raise SinkUnavailable("the database is away")

    with pytest.raises(SinkUnavailable):
        await deliver(world.delivery(GivesUp(world.target, Fuse()), records=20), until_end=True)

    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_changes_that_never_cease_are_readable_all_the_while() -> None:
    """A transaction of the log ends although the next batch is always there already."""
    script = [[[("orders", "c", key, "x")]] for key in range(100)]
    world = World(script)

    class Busy(ScriptedSource):
        async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
            async with aclosing(super().changes(resume_from)) as batches:
                async for batch in batches:
                    world.clock.advance(10)
                    yield batch

    async def run() -> None:
        for topic in internal_topics(history_ms=1_000):
            await world.log.ensure_topic(topic)
        await world.ingest_from(Busy(script, Fuse()))

    asyncio.run(run())

    ends = [each for each in world.reports if isinstance(each, OffsetsApplied)]
    assert len(ends) >= 100 * 10 // (OPEN_MS_MAX + 30)


def test_a_target_ahead_of_the_log_stops() -> None:
    world = World([[[("orders", "c", 1, "a")]]])
    asyncio.run(world.run(Fuse()))
    place, applied = next(
        (place, applied)
        for place, applied in world.target.offsets.items()
        if "orders" in place.topic
    )

    world.target.offsets[place] = applied._replace(next_offset=applied.next_offset + 5)

    with pytest.raises(PositionLost, match="ahead of the log"):
        asyncio.run(world.deliver(Fuse()))


def test_offsets_beyond_the_log_are_lost_and_not_waited_for() -> None:
    world = World([[[("orders", "c", 1, "a")]]])
    asyncio.run(world.run(Fuse()))
    place = TopicPartition("shop.public.orders", 0)
    log: Any = ImpatientLog(world.log, place, fetches=2)
    reader = SliceReader(log, after_log=Unrouted(), fetch_bytes=1 << 20, skipped=dict)
    part = Slice(
        log, {place: AppliedOffset("", 0)}, {place: AppliedOffset("", 50)}, None, reader.read
    )

    async def read() -> list[TableChanges]:
        return [changes async for changes in part.changes()]

    with pytest.raises(PositionLost, match="ends before the offset to read"):
        asyncio.run(read())


def test_a_topic_made_anew_under_the_sink_stops_it() -> None:
    world = World([[[("orders", "c", 1, "a")]]])
    asyncio.run(world.run(Fuse()))

    settings_of, _ = world.log.topics["shop.public.orders"]
    world.log.delete_topic("shop.public.orders")
    asyncio.run(world.log.ensure_topic(settings_of))

    with pytest.raises(PositionLost, match="a deleted topic of the same name"):
        asyncio.run(world.deliver(Fuse()))


def test_a_sink_that_slept_beyond_the_tombstones_stops() -> None:
    world = World([[[("orders", "c", 1, "a")]], [[("orders", "c", 2, "b")]]])
    asyncio.run(world.run(Fuse()))

    for place, partition in world.log.partitions.items():
        if "orders" in place.topic:
            partition.deletes_dropped_to = partition.end + 1

    with pytest.raises(PositionLost, match="the log has removed deletes"):
        asyncio.run(world.deliver(Fuse()))


def test_a_table_whose_history_is_gone_does_not_hold_up_the_others() -> None:
    script = [[[("orders", "c", 1, "a"), ("customers", "c", 1, "b")]]]
    world = World(script)
    asyncio.run(world.run(Fuse()))
    for place, partition in world.log.partitions.items():
        if "orders" in place.topic:
            partition.deletes_dropped_to = partition.end + 1

    world.script = [*script, [[("orders", "c", 2, "lost"), ("customers", "c", 2, "c")]]]
    asyncio.run(world.run(Fuse()))

    assert world.target.tables == {"orders": {1: "a"}, "customers": {1: "b", 2: "c"}}
    told = [each for each in world.reports if isinstance(each, StateChanged)]
    assert [each.table for each in told if each.state is TaskState.QUARANTINED] == ["public.orders"]


def test_deletes_that_age_out_while_they_are_read_stop_only_their_table() -> None:
    world = World([[[("orders", "c", 1, "a"), ("customers", "c", 1, "b")]]])
    asyncio.run(world.run(Fuse()))
    world.target = MemoryTarget()
    orders = next(part for place, part in world.log.partitions.items() if "orders" in place.topic)

    class AgingSink(MemorySink):
        """While it reads, tombstones go that it may not have come to."""

        async def apply(self, part: Slice) -> None:
            async def read(whole: Slice) -> AsyncIterator[TableChanges]:
                async for changes in part.read(whole):
                    orders.deletes_dropped_to = orders.end
                    yield changes

            await super().apply(replace(part, read=read))

    sink = AgingSink(world.target, Fuse())
    asyncio.run(deliver(world.delivery(sink, records=1), until_end=True))

    assert world.target.tables == {"customers": {1: "b"}}


def test_a_fresh_target_is_no_sleeper() -> None:
    world = World([[[("orders", "c", 1, "a")]]])
    asyncio.run(world.run(Fuse()))
    for place, partition in world.log.partitions.items():
        if "orders" in place.topic:
            partition.deletes_dropped_to = partition.end
    world.target.tables, world.target.offsets = {}, {}

    asyncio.run(world.deliver(Fuse()))

    assert world.target.tables == {"orders": {1: "a"}}


def without_empty(tables: dict[str, dict[int, str]]) -> dict[str, dict[int, str]]:
    return {name: rows for name, rows in tables.items() if rows}


def test_a_sink_that_finds_nothing_new_tells_the_tables_of_the_log_all_the_same() -> None:
    world = World([[[("orders", "c", 1, "a"), ("customers", "c", 1, "b")]]])
    asyncio.run(world.run(Fuse()))
    world.reports.clear()

    asyncio.run(world.deliver(Fuse()))

    assert not [each for each in world.reports if isinstance(each, RowsMoved)]
    told = {each.table for each in world.reports if isinstance(each, TableKnown)}
    assert told == {"public.orders", "public.customers"}


async def test_a_paused_table_whose_name_has_a_dot_is_held_and_no_other() -> None:
    world = DotlessTopics([[[("a.b", "c", 1, "x"), ("b", "c", 1, "x")]]])
    await world.run(Fuse())
    world.script = [*world.script, [[("a.b", "c", 2, "y"), ("b", "c", 2, "y")]]]
    await world.ingest(Fuse())
    wanted = DesiredTaskState("shop", paused_tables=frozenset({"public.a.b"}))
    delivery = world.delivery(MemorySink(world.target, Fuse()), records=1)

    await deliver(replace(delivery, desired=lambda: wanted), until_end=True)

    assert world.target.tables == {"a.b": {1: "x"}, "b": {1: "x", 2: "y"}}


class DotlessTopics(World):
    """The topics have the names of the tables without their schema."""

    @property
    def rules(self) -> TopicRules:
        return replace(super().rules, template="{pipeline}.{table}")
