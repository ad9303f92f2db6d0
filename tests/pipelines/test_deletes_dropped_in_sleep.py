"""Who was paused for longer than deletes stay in the log is told so, also without a restart."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.deliver.deliver import deliver
from headwater.pipelines.reports import StateChanged, TaskState
from tests.memory_log import Fuse
from tests.pipelines.pipeline_in_memory import PIPELINE, MemorySink, World

pytestmark = pytest.mark.slow

ORDERS = TopicPartition("shop.public.orders", 0)
SCRIPT = [
    [[("orders", "c", 1, "a"), ("orders", "c", 2, "b"), ("items", "c", 1, "x")]],
    [[("orders", "d", 1, "")]],
    [[("orders", "c", 3, "c")]],
]
TABLE = DesiredTaskState(PIPELINE, paused_tables=frozenset({"public.orders"}))
ALL = DesiredTaskState(PIPELINE, is_paused=True)
NOTHING = DesiredTaskState(PIPELINE)


async def until(met: Callable[[], object]) -> None:
    for _ in range(6_000):
        if met():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("never")


@pytest.mark.parametrize("pause", [TABLE, ALL], ids=["a table", "the pipeline"])
@pytest.mark.parametrize("aged", ["deletes", "everything"])
async def test_a_pause_that_deletes_did_not_outlast_is_no_silent_loss(
    pause: DesiredTaskState, aged: str
) -> None:
    world = World(SCRIPT)
    world.log.fuse = Fuse()
    for topic in internal_topics(history_ms=1_000):
        await world.log.ensure_topic(topic)

    async def read(until: int) -> None:
        world.script = SCRIPT[:until]
        await world.ingest(Fuse())

    await read(1)
    wanted = NOTHING
    delivery = replace(
        world.delivery(MemorySink(world.target, Fuse()), records=1), desired=lambda: wanted
    )
    delivering = asyncio.ensure_future(deliver(delivery))
    await until(lambda: world.target.tables.get("orders") == {1: "a", 2: "b"})
    wanted = pause
    await asyncio.sleep(0.1)

    await read(3)
    held = world.log.partitions[ORDERS]
    gone = [each for each in held.entries if each.first >= world.target.offsets[ORDERS].next_offset]
    gone = [each for each in gone if each.data][:1]  # the delete, with its tombstone
    for each in gone:
        each.data = b""
    if aged == "deletes":
        held.deletes_dropped_to = held.cleaned_to = gone[-1].end
    else:
        held.entries = [each for each in held.entries if each.first >= gone[-1].end]
        held.start = gone[-1].end
    wanted = NOTHING

    def is_told() -> bool:
        """As a table that is held, or as what the sink ends with."""
        states = [each.state for each in world.reports if isinstance(each, StateChanged)]
        return TaskState.QUARANTINED in states or delivering.done()

    await until(lambda: is_told() or 3 in world.target.tables["orders"])

    assert is_told(), world.target.tables
    delivering.cancel()
    await asyncio.wait([delivering])
