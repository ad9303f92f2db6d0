"""What is decided only while a reader waits for it is read, and not taken for compacted away."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import (
    Bounds,
    Fetched,
    FetchLimit,
    Isolation,
    Offsets,
    RetainedRange,
    TopicPartition,
)
from headwater.pipelines.loops.deliver.slice_reader import SliceReader
from headwater.pipelines.loops.deliver.truncate_barriers import TruncateRange, find_barriers
from headwater.sinks.sink import AppliedOffset, Slice
from tests.memory_log import Fuse, MemoryLog
from tests.pipelines.loops.migration.migrations import MigratingWorld, expected
from tests.pipelines.pipeline_in_memory import Unrouted, World

TOPIC = "shop.public.orders"


class DecidingLog:
    """What it holds of a topic is undecided until it has been fetched once, in vain."""

    def __init__(self, log: MemoryLog) -> None:
        self._log, self.is_decided = log, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def bounds(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        found = await self._log.bounds(partitions)
        if self.is_decided:
            return found
        return {
            part: replace(held, stable=held.start) if part.topic == TOPIC else held
            for part, held in found.items()
        }

    async def fetch(
        self, wanted: Offsets, *, limit: FetchLimit, isolation: Isolation
    ) -> Sequence[Fetched]:
        if not self.is_decided and any(part.topic == TOPIC for part in wanted):
            self.is_decided = True
            return []
        return await self._log.fetch(wanted, limit=limit, isolation=isolation)


def filled(script: Sequence[Any], *, partitions: int = 1) -> tuple[Any, dict[TopicPartition, int]]:
    """A log that is about to be decided, and where its topic ends."""
    world = World(script, partitions=partitions)
    asyncio.run(world.run(Fuse()))
    places = [TopicPartition(TOPIC, number) for number in range(partitions)]
    bounds = asyncio.run(world.log.bounds(places))
    return DecidingLog(world.log), {part: held.end for part, held in bounds.items()}


def test_a_slice_is_read_whole_although_its_end_is_decided_late() -> None:
    log, ends = filled([[[("orders", "c", 1, "a")]], [[("orders", "c", 2, "b")]]])
    reader = SliceReader(log, after_log=Unrouted(), fetch_bytes=1 << 20, skipped=dict)
    start = {part: AppliedOffset("", 0) for part in ends}
    part = Slice(
        log, start, {part: AppliedOffset("", end) for part, end in ends.items()}, None, reader.read
    )

    async def read() -> list[TableChanges]:
        return [changes async for changes in part.changes()]

    found = asyncio.run(read())

    assert [row["id"] for changes in found for row in changes.rows.to_pylist()] == [1, 2]


def test_deletes_that_aged_out_since_the_slice_was_cut_are_missed() -> None:
    """A second attempt at a slice may come long after the first."""
    world = World([[[("orders", "c", 1, "a")]], [[("orders", "c", 2, "b")]]])
    asyncio.run(world.run(Fuse()))
    place = TopicPartition(TOPIC, 0)
    [held] = asyncio.run(world.log.retained_ranges([place])).values()
    [end] = [each.end for each in asyncio.run(world.log.bounds([place])).values()]
    reader = SliceReader(world.log, after_log=Unrouted(), fetch_bytes=1 << 20, skipped=dict)

    async def retained_ranges(partitions: Any) -> Mapping[TopicPartition, RetainedRange]:
        return {part: replace(held, deletes_dropped_to=end) for part in partitions}

    world.log.retained_ranges = retained_ranges  # type: ignore[method-assign]
    part = Slice(
        world.log,
        {place: AppliedOffset("", 1)},
        {place: AppliedOffset("", end)},
        None,
        reader.read,
        kept={place: held},
    )  # fmt: skip

    async def read() -> None:
        async for _ in part.changes():
            pass

    with pytest.raises(PositionLost, match="the log removed deletes before they were read"):
        asyncio.run(read())


def test_truncates_are_found_although_they_are_decided_late() -> None:
    script = [[[("orders", "c", 1, "a")]], [[("orders", "t", 0, "")]]]
    log, ends = filled(script, partitions=2)

    ranges = {part: TruncateRange(0, end) for part, end in ends.items()}
    barriers = asyncio.run(find_barriers(log, ranges))

    assert [barrier.keys() for barrier in barriers] == [ends.keys()]


def test_a_topic_is_filled_whole_although_its_end_is_decided_late() -> None:
    script = [[[("orders", "c", 1, "a")]], [[("orders", "c", 2, "b")]]]
    world = MigratingWorld(script)
    asyncio.run(world.read(len(script), Fuse()))
    inner, deciding = world.log, DecidingLog(world.log)

    world.log = cast(MemoryLog, deciding)
    asyncio.run(world.migrate(3, Fuse()))
    world.log = inner
    asyncio.run(world.write(Fuse()))

    assert deciding.is_decided
    assert Counter(world.counting.seen) == expected(script)
