"""A topic's next generation holds what the former one held, and no sink gets a change twice."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.rows.settings import ValueFormat
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.pipelines.time_travel.history.as_of import AsOf, PositionAsOf, TimeAsOf
from headwater.pipelines.time_travel.history.cut_points import find_cut_point
from tests.memory_log import Crash, Fuse
from tests.pipelines.loops.migration.migration_histories import FORMATS, HISTORIES, History
from tests.pipelines.loops.migration.migrations import (
    TABLE,
    MigratingWorld,
    Seen,
    expected,
    flattened,
)
from tests.pipelines.pipeline_in_memory import PIPELINE, Transaction


def by_key(seen: Sequence[Seen]) -> dict[int | None, list[str | None]]:
    found: dict[int | None, list[str | None]] = defaultdict(list)
    for letter, key, value in seen:
        if letter != "t":
            found[key].append(value)
    return found


def in_order(script: Sequence[Transaction]) -> dict[int | None, list[str | None]]:
    found: dict[int | None, list[str | None]] = defaultdict(list)
    for _, letter, key, value in flattened(script):
        if letter != "t":
            found[key].append(None if letter == "d" else value)
    return found


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(HISTORIES)
def test_an_append_table_has_every_change_once_whatever_crashed(history: History) -> None:
    world = MigratingWorld(history.script, partitions=history.partitions)

    asyncio.run(history.live(world))

    if world.counting.seen or history.has_topic:
        assert Counter(world.counting.seen) == expected(history.script)
        assert by_key(world.counting.seen) == in_order(history.script)


SCRIPT: list[Transaction] = [
    [[(TABLE, "c", 1, "a"), (TABLE, "c", 2, "b")]],
    [[(TABLE, "u", 1, "c")], [(TABLE, "d", 2, "")]],
    [[(TABLE, "t", 0, "")]],
    [[(TABLE, "c", 3, "d"), (TABLE, "u", 3, "e")]],
    [[(TABLE, "u", 3, "f"), (TABLE, "c", 4, "g")]],
]


@pytest.mark.slow
@pytest.mark.parametrize("value", FORMATS)
def test_a_crash_at_any_step_of_it_repeats_nothing(value: ValueFormat) -> None:
    async def crashed(at: int, *, after: bool) -> tuple[list[Seen], int]:
        world = MigratingWorld(SCRIPT)
        await world.read(4, Fuse())
        await world.write(Fuse())
        fuse = Fuse(at, after=after)
        with suppress(Crash):
            await world.migrate(2, fuse, value=value)
        await world.migrate(2, Fuse(), value=value)
        await world.read(5, Fuse())
        await world.write(Fuse())
        assert await world.topic() == "shop.public.orders.g2"
        return world.counting.seen, fuse.count

    _, steps = asyncio.run(crashed(0, after=False))

    assert steps > 10
    for at in range(1, steps + 1):
        for after in (False, True):
            seen, _ = asyncio.run(crashed(at, after=after))
            assert Counter(seen) == expected(SCRIPT), f"crashed at {at}"


def test_a_sink_that_holds_nothing_gets_everything_from_the_new_topic() -> None:
    async def live() -> tuple[list[Seen], set[str]]:
        world = MigratingWorld(SCRIPT)
        await world.read(4, Fuse())
        await world.migrate(3, Fuse())
        world.log.delete_topic("shop.public.orders")
        await world.read(5, Fuse())
        await world.write(Fuse())
        return world.counting.seen, {each.topic for each in world.target.offsets}

    seen, topics = asyncio.run(live())

    assert Counter(seen) == expected(SCRIPT)
    assert topics == {"shop.public.orders.g2", "__headwater_commits"}


@pytest.mark.slow
def test_a_sink_that_slept_through_two_switches_finishes_one_topic_after_the_other() -> None:
    async def live() -> list[Seen]:
        world = MigratingWorld(SCRIPT)
        await world.read(1, Fuse())
        await world.write(Fuse())
        await world.read(3, Fuse())
        await world.migrate(3, Fuse())
        await world.read(4, Fuse())
        await world.migrate(2, Fuse())
        await world.read(5, Fuse())
        await world.write(Fuse())
        return world.counting.seen

    seen = asyncio.run(live())

    assert Counter(seen) == expected(SCRIPT)
    assert by_key(seen) == in_order(SCRIPT)


def test_a_former_topic_that_is_gone_too_early_is_said_and_not_skipped() -> None:
    async def live() -> None:
        world = MigratingWorld(SCRIPT)
        await world.read(1, Fuse())
        await world.write(Fuse())
        await world.read(4, Fuse())
        await world.migrate(2, Fuse())
        world.log.delete_topic("shop.public.orders")
        await world.write(Fuse())

    with pytest.raises(Exception, match="dropped before its end"):
        asyncio.run(live())


def test_a_moment_before_the_switch_is_found_in_the_new_topic() -> None:
    async def live() -> list[int]:
        world = MigratingWorld(SCRIPT)
        await world.read(4, Fuse())
        await world.migrate(1, Fuse(), value="flat-json")
        place = TopicPartition(await world.topic(), 0)
        points: list[AsOf] = [
            TimeAsOf(1_000),
            TimeAsOf(2_000),
            PositionAsOf("1", is_included=True),
        ]
        return [
            (await find_cut_point(world.log, PIPELINE, each, [place])).ends[place]
            for each in points
        ]

    ends = asyncio.run(live())

    assert ends == [5, 6, 5]  # two, then an update, a delete and its tombstone; then a truncate


def test_records_keep_their_time_their_place_and_their_schema() -> None:
    async def live(value: ValueFormat) -> list[list[tuple[int, bytes]]]:
        world = MigratingWorld(SCRIPT)
        await world.read(4, Fuse())
        await world.migrate(1, Fuse(), value=value)
        return [
            [
                pair
                async for columns in read_decided(world.log, TopicPartition(topic, 0))
                for pair in zip(
                    columns.timestamps_ms.tolist(), columns.headers.to_pylist(), strict=True
                )
            ]
            for topic in ("shop.public.orders", "shop.public.orders.g2")
        ]

    for value in FORMATS:
        former, present = asyncio.run(live(value))
        assert present == former
