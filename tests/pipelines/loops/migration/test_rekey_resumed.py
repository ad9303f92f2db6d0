"""A filling under another key broke off, and the edit was taken back before it was made again."""

import asyncio

import pytest

from tests.memory_log import Crash, Fuse
from tests.pipelines.loops.migration.migrations import TABLE
from tests.pipelines.loops.migration.rekeyed_world import RekeyedWorld
from tests.pipelines.loops.migration.test_rekey import rows_of, told

pytestmark = pytest.mark.slow

SCRIPT = [
    [[(TABLE, "c", 1, "a"), (TABLE, "c", 2, "b")]],
    [[(TABLE, "c", 3, "c")]],
    # while the edit is taken back
    [[(TABLE, "d", 1, "")]],
    [[(TABLE, "u", 2, "x")]],
    # under the new key
    [[(TABLE, "c", 4, "e")]],
]


async def live(at: int, *, after: bool) -> tuple[RekeyedWorld, int]:
    world = RekeyedWorld(SCRIPT)
    await world.read(2, Fuse())
    fuse = Fuse(at, after=after)
    crashed = False
    try:
        await world.migrate(1, fuse)
    except Crash:
        crashed = True
    world.log.fuse = Fuse()
    await world.log.writer("headwater.shop")  # ends what the crash has left open
    if crashed and await world.topic() == "shop.public.orders":
        world.is_rekeyed = False  # the edit is taken back
        await world.read(4, Fuse())
    await world.migrate(1, Fuse())
    await world.read(len(SCRIPT), Fuse())
    await world.write(Fuse())
    return world, fuse.count


def test_records_filled_before_the_edit_was_taken_back_are_not_delivered_afterwards() -> None:
    _, steps = asyncio.run(live(0, after=False))
    wrong = {}
    for at in range(1, steps + 1):
        for after in (False, True):
            world, _ = asyncio.run(live(at, after=after))
            if told(world) != rows_of(SCRIPT):
                wrong[at, after] = told(world)
    assert not wrong, (rows_of(SCRIPT), wrong)
