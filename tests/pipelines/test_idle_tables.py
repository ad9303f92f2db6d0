"""Tables to which nothing happens are known after every start."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from core_log.log import Log
from pipelines.reports import Known, Report
from pipelines.running.supervisor import Surroundings
from pipelines.running.units import Job, Listeners, Units
from tests.pipelines.proving_world import World, tell

PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, total: 4000, rate: 0, batch_rows: 500}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s}
"""


async def told_at_start(world: World) -> set[str]:
    """By a source to which nothing happens."""
    reports, is_told = list[Report](), asyncio.Event()

    async def idle(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    @asynccontextmanager
    async def open_log(_: object) -> AsyncIterator[Log]:
        yield world.log

    def report(each: Report) -> None:
        reports.append(each)
        if isinstance(each, Known):
            is_told.set()

    async with asyncio.TaskGroup() as tasks:
        listeners = Listeners(report, lambda _: None, lambda _: None)
        units = Units(tasks, idle, open_log, listeners, Surroundings(world.clock, Random(7)))
        units.start(Job(world.loaded, "source"))
        async with asyncio.timeout(10):
            await is_told.wait()
        await units.stop_all()
    return {each.table for each in reports if isinstance(each, Known)}


def test_tables_to_which_nothing_happens_are_told_at_the_start(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        await world.run()
        return await told_at_start(world)

    found = tell(tmp_path, PIPELINE, story)

    assert {"shop.customers", "shop.orders"} <= found
