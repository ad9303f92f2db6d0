"""A table that is held while it is truncated is whole after a restart, however many partitions."""

from dataclasses import replace

import pytest

from headwater.core_log.model.log import FetchLimit
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.deliver.deliver import deliver
from tests.memory_log import Fuse
from tests.pipelines.pipeline_in_memory import PIPELINE, MemorySink, World, fold

pytestmark = pytest.mark.slow


def rows(table: str, first: int, count: int) -> list[tuple[str, str, int, str]]:
    return [(table, "c", key, f"{key}") for key in range(first, first + count)]


SCRIPT = [
    [[*rows("orders", 1, 8), *rows("items", 1, 1)]],
    # held from here on
    [[("orders", "t", 0, ""), *rows("orders", 11, 8)]],
    [rows("items", 2, 1)],
    # while the sink is away
    [rows("orders", 21, 8)],
]


async def test_a_truncate_that_a_held_table_has_not_had_counts_once_after_a_restart() -> None:
    world = World(SCRIPT, partitions=2)
    world.log.fuse = Fuse()
    for topic in internal_topics(history_ms=1_000):
        await world.log.ensure_topic(topic)

    async def read(until: int) -> None:
        world.script = SCRIPT[:until]
        await world.ingest(Fuse())

    async def write(*paused: str) -> None:
        delivery = world.delivery(MemorySink(world.target, Fuse()), records=1)
        delivery.reader._limit = FetchLimit()  # all of a partition at once, as it is in life
        wanted = DesiredTaskState(PIPELINE, paused_tables=frozenset(paused))
        await deliver(replace(delivery, desired=lambda: wanted), until_end=True)

    await read(1)
    await write()
    await read(3)
    await write("public.orders")
    await read(4)
    await write()

    assert world.target.tables == fold(SCRIPT)
