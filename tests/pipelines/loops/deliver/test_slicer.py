"""Slices end where the source committed, however the log grew and whatever is held back."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping

import pyarrow as pa
import pytest

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.journal.commits import Commit, OffsetRange, commits_home, encode_commit
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.journal.schemas import StoredSchema, encode_schema, schemas_home
from headwater.pipelines.loops.deliver import slicer as slicer_module
from headwater.pipelines.loops.deliver.slicer import SliceLimits, Slicer
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, Slice
from tests.fakes import SimulatedClock
from tests.memory_log import MemoryLog
from tests.pipelines.pipeline_in_memory import schema_of

ORDERS = TopicPartition("shop.public.orders", 0)
CUSTOMERS = TopicPartition("shop.public.customers", 0)
HOME = commits_home("shop")


class SlicedLog:
    """A log that a pipeline has written to, and one slicer over it."""

    def __init__(self) -> None:
        self.log, self.clock = MemoryLog(), SimulatedClock(1_000)

    async def open(self) -> None:
        for topic in internal_topics(history_ms=1_000):
            await self.log.ensure_topic(topic)
        for place in (ORDERS, CUSTOMERS):
            await self.add_table(place)

    async def add_table(self, place: TopicPartition) -> None:
        await self.log.ensure_topic(TopicSettings(name=place.topic))
        schema = schema_of(place.topic.rpartition(".")[2])
        stored = StoredSchema("shop", place.topic, 1, schema, WireSettings(), {}, 0)
        await self.log.append(schemas_home(place.topic), encode_schema(stored))

    async def commit(
        self, *places: TopicPartition, records_each: int = 2, committed_ms: int = 5
    ) -> None:
        """One transaction of the source that touches these partitions."""
        writer = await self.log.writer("headwater.shop")
        async with writer.transaction() as transaction:
            touched = {}
            for place in places:
                cells = pa.array([b"x"] * records_each, pa.binary())
                [batch] = arrow_codec.encode(cells, cells, timestamps_ms=0)
                first = await transaction.append(place, batch)
                touched[place] = OffsetRange(first, first + records_each, records_each, 100)
            commit = Commit("shop", committed_ms, {"stream": "1"}, touched)
            await transaction.append(HOME, encode_commit(commit, now_ms=0))

    async def slicer(
        self, offsets: AppliedOffsets, *, records_due: int = 1, wait_ms: int = 0
    ) -> Slicer:
        limits = SliceLimits(records=records_due, bytes=1 << 30, wait_ms=wait_ms)
        slicer = Slicer(self.log, "shop", limits=limits, read=nothing, clock=self.clock)
        await slicer.start(offsets)
        return slicer

    async def forget_boundaries(self) -> None:
        """What retention does to `__headwater_commits`."""
        partition = self.log.partitions[HOME]
        partition.start = partition.end
        partition.entries.clear()


async def nothing(part: Slice) -> AsyncIterator[TableChanges]:
    return
    yield


async def drain(slicer: Slicer, held: frozenset[str] = frozenset()) -> list[Slice]:
    """Applies everything that is due."""
    found = []
    while True:
        part = await slicer.next(held)
        if part is not None:
            slicer.advance(part)
            found.append(part)
        elif slicer.is_caught_up(held):
            return found


def ends(part: Slice) -> dict[TopicPartition, int]:
    return {place: applied.next_offset for place, applied in part.end.items() if place != HOME}


def test_a_slice_ends_where_its_last_transaction_ended() -> None:
    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS, CUSTOMERS)
        await world.commit(ORDERS)
        return await drain(await world.slicer({}))

    first, second = asyncio.run(story())

    assert ends(first) == {ORDERS: 2, CUSTOMERS: 2}
    assert ends(second) == {ORDERS: 5}, "the marker between them belongs to no transaction's end"
    assert first.cut is not None
    assert second.cut is not None
    assert first.cut.offset < second.cut.offset
    assert second.cut.positions == {"stream": "1"}


def test_a_slicer_that_has_applied_everything_knows_that_without_asking_again() -> None:
    async def story() -> tuple[bool, bool]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS)
        slicer = await world.slicer({})
        part = await slicer.next()
        assert part is not None
        slicer.advance(part)
        again = await world.slicer(part.end)
        return slicer.is_caught_up(), again.is_caught_up()

    assert asyncio.run(story()) == (True, True)


async def test_a_topic_that_begins_after_the_slicer_is_known_by_the_name_of_its_table() -> None:
    world, late = SlicedLog(), TopicPartition("shop.public.late", 0)
    await world.open()
    slicer = await world.slicer({})
    await world.add_table(late)
    await world.commit(late)

    part = await slicer.next()

    assert part is not None and late in part.end
    assert slicer.table_of(late.topic) == slicer.table_of(ORDERS.topic).replace("orders", "late")
    assert slicer.table_of(late.topic) != late.topic


def test_many_changes_wait_half_as_long_as_the_last_slice_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slicer_module, "MANY_RECORDS", 4)
    monkeypatch.setattr(slicer_module, "POLL_MS", 1)

    async def waited_ms(records: int) -> int:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS)
        slicer = await world.slicer({}, records_due=100, wait_ms=10_000)
        part = await slicer.next()
        assert part is not None
        world.clock.advance(800)
        slicer.advance(part)
        await world.commit(ORDERS, records_each=records)
        assert await slicer.next() is None
        since_ms = world.clock.monotonic_ms()
        while await slicer.next() is None:
            world.clock.advance(100)
        return world.clock.monotonic_ms() - since_ms

    assert asyncio.run(waited_ms(4)) == 400
    assert asyncio.run(waited_ms(3)) == 10_000


def test_a_boundary_without_a_time_keeps_the_time_of_a_cut() -> None:
    """A heartbeat moves the position, and nothing was committed at the source."""

    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS)
        await world.commit(committed_ms=0)
        await world.commit(ORDERS, committed_ms=0)
        return await drain(await world.slicer({}, records_due=4))

    [part] = asyncio.run(story())

    assert part.cut is not None
    assert part.cut.committed_ms == 5


def test_small_transactions_share_a_slice_until_it_is_due() -> None:
    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        for _ in range(10):
            await world.commit(ORDERS)
        return await drain(await world.slicer({}, records_due=6))

    slices = asyncio.run(story())

    assert [ends(part) for part in slices] == [
        {ORDERS: 8},
        {ORDERS: 17},
        {ORDERS: 26},
        {ORDERS: 29},
    ]


def test_the_first_change_after_quiet_goes_at_once_and_the_next_one_waits() -> None:
    async def story() -> tuple[Slice | None, Slice | None, Slice | None]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS)
        slicer = await world.slicer({}, records_due=1_000, wait_ms=1_000)
        first = await slicer.next()
        first = first or await slicer.next()
        assert first is not None
        slicer.advance(first)
        await world.commit(ORDERS)
        early = await slicer.next()
        world.clock.advance(1_000)
        return first, early, await slicer.next()

    first, early, late = asyncio.run(story())

    assert first is not None
    assert early is None
    assert late is not None
    assert ends(late) == {ORDERS: 5}


def test_a_held_topic_stays_behind_and_catches_up_in_one_slice() -> None:
    async def story() -> tuple[list[Slice], list[Slice]]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS, CUSTOMERS)
        slicer = await world.slicer({})
        without = await drain(slicer, frozenset({CUSTOMERS.topic}))
        await world.commit(CUSTOMERS)
        return without, await drain(slicer)

    without, after = asyncio.run(story())

    assert [ends(part) for part in without] == [{ORDERS: 2}]
    assert ends(after[-1])[CUSTOMERS] == 5
    assert after[0].start[CUSTOMERS].next_offset == 0


def test_a_topic_held_at_a_restart_is_not_forgotten() -> None:
    """The boundary that the table missed is behind the one from which the sink goes on."""

    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS, CUSTOMERS)
        [part] = await drain(await world.slicer({}), frozenset({CUSTOMERS.topic}))
        return await drain(await world.slicer(part.end))

    [part] = asyncio.run(story())

    assert ends(part) == {CUSTOMERS: 3}


def test_records_older_than_every_remembered_boundary_are_applied_first() -> None:
    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS, CUSTOMERS)
        await world.forget_boundaries()
        await world.commit(ORDERS)
        return await drain(await world.slicer({}))

    slices = asyncio.run(story())

    assert slices[0].cut is None
    assert ends(slices[0]) == {ORDERS: 3, CUSTOMERS: 3}
    assert slices[-1].cut is not None
    assert ends(slices[-1]) == {ORDERS: 5}


def test_boundaries_that_age_out_while_they_are_read_cost_nothing_but_their_cuts() -> None:
    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS)
        slicer = await world.slicer({})
        await world.commit(ORDERS)
        await world.forget_boundaries()
        before = await drain(slicer)
        await world.commit(CUSTOMERS)
        return [*before, *await drain(slicer)]

    older, newer = asyncio.run(story())

    assert (ends(older), older.cut) == ({ORDERS: 6}, None)
    assert ends(newer) == {CUSTOMERS: 2}
    assert newer.cut is not None


def test_another_pipelines_open_transaction_does_not_hide_our_boundary() -> None:
    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        other = await world.log.writer("headwater.other")
        async with other.transaction() as hanging:
            cells = pa.array([b"other"], pa.binary())
            [batch] = arrow_codec.encode(cells, cells, timestamps_ms=0)
            await world.commit(ORDERS)
            await hanging.append(HOME, batch)
        return await drain(await world.slicer({}))

    [part] = asyncio.run(story())

    assert ends(part)[ORDERS] >= 2


def test_stands_of_a_resumed_sink_are_where_the_slices_begin() -> None:
    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS)
        [part] = await drain(await world.slicer({}))
        await world.commit(ORDERS)
        return await drain(await world.slicer(part.end))

    [part] = asyncio.run(story())

    assert part.start[ORDERS] == AppliedOffset(part.end[ORDERS].topic_id, 2)


def test_commits_of_a_topic_that_was_made_anew_say_nothing_of_the_one_that_is_there() -> None:
    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS, CUSTOMERS, records_each=10)
        settings, _ = world.log.topics[ORDERS.topic]
        world.log.delete_topic(ORDERS.topic)
        await world.log.ensure_topic(settings)
        await world.commit(ORDERS)
        return await drain(await world.slicer({}))

    found = [ends(part) for part in asyncio.run(story())]

    assert found == [{CUSTOMERS: 10}, {ORDERS: 2}], "nobody comes to the former topic's end"


def test_a_commit_that_came_while_the_slicer_started_is_of_the_topic_that_is_there() -> None:
    async def story() -> list[Slice]:
        world = SlicedLog()
        await world.open()
        await world.commit(ORDERS)
        bounds, grown = world.log.bounds, list[bool]()

        async def growing(
            partitions: Iterable[TopicPartition],
        ) -> Mapping[TopicPartition, Bounds]:
            found = await bounds(partitions)
            if ORDERS in found and not grown:
                grown.append(True)
                await world.commit(ORDERS)
            return found

        world.log.bounds = growing  # type: ignore[method-assign]
        return await drain(await world.slicer({}))

    found = [ends(part) for part in asyncio.run(story())]

    assert found == [{ORDERS: 2}, {ORDERS: 5}]
