"""A table's topic gets another key: the newest rows go over, once, and nothing that is not true."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.rows.settings import ValueFormat
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.internal_topics import read_decided
from tests.memory_log import Crash, Fuse
from tests.pipelines.loops.migration.migration_histories import FORMATS, HISTORIES, History
from tests.pipelines.loops.migration.migrations import TABLE, Seen, expected
from tests.pipelines.loops.migration.rekeyed_world import RekeyedWorld, by_value
from tests.pipelines.pipeline_in_memory import PIPELINE, Transaction, fold

NEXT = "shop.public.orders.g2"
SCRIPT: list[Transaction] = [
    [[(TABLE, "c", 1, "a"), (TABLE, "c", 2, "b"), (TABLE, "c", 3, "c")]],
    [[(TABLE, "t", 0, "")]],
    [[(TABLE, "c", 1, "d"), (TABLE, "c", 2, "e")], [(TABLE, "c", 3, "f")]],
    [[(TABLE, "u", 1, "g"), (TABLE, "d", 2, "")]],
    [[(TABLE, "c", 2, "h"), (TABLE, "u", 1, "i"), (TABLE, "d", 3, "")]],
]
BEFORE = 4


def rows_of(script: Sequence[Transaction]) -> list[dict[str, Any]]:
    held = fold(script).get(TABLE, {})
    return [{"id": id, "value": value} for id, value in sorted(held.items())]


def told(world: RekeyedWorld) -> list[dict[str, Any]]:
    return sorted(world.keyed.mirror, key=lambda row: row["id"])


def events(script: Sequence[Transaction], *, since: int) -> Counter[Seen]:
    """What comes under the new key behind so many transactions, as sinks see it."""
    told = [each for number in by_value(script)[since:] for batch in number for each in batch]
    return Counter(told)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(HISTORIES)
def test_a_mirror_is_equal_to_the_source_whatever_crashed(history: History) -> None:
    world = RekeyedWorld(history.script, partitions=history.partitions)

    asyncio.run(history.live(world))

    if history.has_topic:
        assert told(world) == rows_of(history.script)


@pytest.mark.slow
@pytest.mark.parametrize("value", FORMATS)
def test_a_crash_at_any_step_of_it_repeats_nothing(value: ValueFormat) -> None:
    async def crashed(at: int, *, after: bool) -> tuple[RekeyedWorld, int]:
        world = RekeyedWorld(SCRIPT)
        await world.read(BEFORE, Fuse())
        await world.write(Fuse())
        fuse = Fuse(at, after=after)
        with suppress(Crash):
            await world.migrate(2, fuse, value=value)
        await world.migrate(2, Fuse(), value=value)
        await world.read(len(SCRIPT), Fuse())
        await world.write(Fuse())
        assert await world.topic() == NEXT
        return world, fuse.count

    _, steps = asyncio.run(crashed(0, after=False))

    assert steps > 10
    for at in range(1, steps + 1):
        for after in (False, True):
            world, _ = asyncio.run(crashed(at, after=after))
            seen = expected(SCRIPT[:BEFORE]) + events(SCRIPT, since=BEFORE)
            assert Counter(world.keyed.seen) == seen, f"crashed at {at}"
            assert told(world) == rows_of(SCRIPT), f"crashed at {at}"


@pytest.mark.parametrize("partitions", [1, 3])
def test_only_what_rows_are_now_goes_over(partitions: int) -> None:
    async def live() -> tuple[list[bytes], RekeyedWorld]:
        world = RekeyedWorld(SCRIPT, partitions=partitions)
        await world.read(BEFORE, Fuse())
        await world.migrate(1, Fuse())
        filled = [
            key
            async for columns in read_decided(world.log, TopicPartition(NEXT, 0))
            for key in columns.keys.to_pylist()
        ]
        await world.read(len(SCRIPT), Fuse())
        await world.write(Fuse())
        return filled, world

    filled, world = asyncio.run(live())

    assert sorted(filled) == [b'{"value":"f"}', b'{"value":"g"}']
    assert told(world) == rows_of(SCRIPT)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ((TABLE, "u", 1, "e"), {"rows_with_null": 0, "rows_like_others": 1}),
        ((TABLE, "u", 1, None), {"rows_with_null": 1, "rows_like_others": 0}),
    ],
)
def test_a_key_that_does_not_tell_rows_apart_is_refused_before_anything_is_changed(
    change: Any, facts: dict[str, int]
) -> None:
    script = [*SCRIPT[:3], [[change]]]

    async def live() -> tuple[RekeyedWorld, ConfigError]:
        world = RekeyedWorld(script)
        await world.read(len(script), Fuse())
        before = await load_positions(world.log, PIPELINE)
        with pytest.raises(ConfigError) as caught:
            await world.migrate(1, Fuse())
        assert await load_positions(world.log, PIPELINE) == before
        return world, caught.value

    world, error = asyncio.run(live())

    assert error.facts == {"topic": "shop.public.orders", "key": "value", **facts}
    assert "nothing was changed" in error.problem and error.hint
    assert NEXT not in {place.topic for place in world.log.partitions}


def test_rows_that_shared_a_value_once_and_no_longer_do_are_no_hindrance() -> None:
    script = [*SCRIPT[:3], [[(TABLE, "u", 1, "e")]], [[(TABLE, "d", 2, "")]]]

    async def live() -> RekeyedWorld:
        world = RekeyedWorld(script)
        await world.read(len(script), Fuse())
        await world.migrate(1, Fuse())
        await world.write(Fuse())
        return world

    world = asyncio.run(live())

    assert told(world) == [{"id": 1, "value": "e"}, {"id": 3, "value": "f"}]
