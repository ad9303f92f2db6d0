"""What `verify:` wants is done when it is due, and its outcome outlives whoever found it."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.control import (
    VERIFIED,
    DesiredState,
    DesiredTaskState,
    Signal,
    read_desired,
    write_control,
)
from headwater.pipelines.reports import VERIFY, GaugesRead, RemarksMade, Report
from headwater.pipelines.running.first_checks import checked_first
from headwater.pipelines.running.tasks import jobs_of
from headwater.pipelines.time_travel.verify.schedule import verify_once
from tests.pipelines.task_runs import task_run
from tests.pipelines.time_travel.verify.test_verify import execute
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, total: 4000, rate: 0, batch_rows: 500}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s}
verify: SCHEDULE
"""


async def verified(world: World) -> DesiredTaskState:
    """What the task has written into the log, by the time that it has something about it."""
    task = asyncio.create_task(
        checked_first()(
            task_run(world.loaded, VERIFY, world.log, clock=world.clock, until_end=False)
        )
    )
    try:
        while True:
            found = await read_desired(world.log, world.loaded.name)
            if found.signals or task.done():
                return found
            await asyncio.wait([task], timeout=0.05)
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_the_outcome_of_every_table_is_in_the_log_and_no_order_to_the_source(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> Any:
        await world.run()
        with closing(sqlite3.connect(tmp_path / "target.db")) as database, database:
            database.execute("DELETE FROM products WHERE id IN (3, 4)")
        return await verified(world)

    found = tell(tmp_path, PIPELINE.replace("SCHEDULE", "{every: 1ms}"), story)

    options = {signal.table: signal.options for signal in found.signals}
    assert options["shop.products"]["differing"] == "2"
    assert options["shop.orders"]["differing"] == "0"
    assert options["shop.orders"]["sides"] == "source,sql"
    assert found.controls() == []
    assert not found.paused_tables


def test_a_table_of_which_its_target_has_nothing_yet_is_not_told_as_different(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> DesiredTaskState:
        await world.run("source")
        await verify_once(world.loaded, world.log, clock=world.clock)
        return await read_desired(world.log, world.loaded.name)

    assert not tell(tmp_path, PIPELINE.replace("SCHEDULE", "{every: 1ms}"), story).signals


HALF_HOUR_MS = 1_800_000
SECONDLY = """
pipeline: shop
source: {type: sql, url: "sqlite:///source.db", tables: ["*"]}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s}
verify: {every: 1s}
"""


async def wait_until(is_so: Callable[[], bool], *tasks: "asyncio.Future[None]") -> None:
    """Waits for something that tasks bring about; fails if one of them ends."""
    while not is_so():
        done, _ = await asyncio.wait(tasks, timeout=0.05)
        assert not done, [each.exception() for each in done]


def test_a_comparison_that_fails_is_still_due_and_its_reason_is_told_until_one_succeeds(
    tmp_path: Path,
) -> None:
    reports: list[Report] = []

    def told() -> list[RemarksMade]:
        return [each for each in reports if isinstance(each, RemarksMade)]

    def due() -> list[int]:
        return [each.value for each in reports if isinstance(each, GaugesRead)]

    async def story(world: World) -> None:
        await world.run()
        (tmp_path / "source.db").rename(tmp_path / "hidden.db")
        run = task_run(world.loaded, VERIFY, world.log, report=reports.append, until_end=False)
        task = asyncio.create_task(checked_first()(run))
        await wait_until(lambda: bool(told()), task)
        assert len(due()) == 1
        (tmp_path / "hidden.db").rename(tmp_path / "source.db")
        await wait_until(lambda: not told()[-1].problem and len(due()) > 1, task)
        task.cancel()
        await asyncio.wait([task])

    execute(
        tmp_path / "source.db",
        "CREATE TABLE items (id INTEGER PRIMARY KEY)",
        "INSERT INTO items VALUES (1)",
    )
    tell(tmp_path, SECONDLY, story)

    first = told()[0]
    assert first.task == VERIFY and first.hint
    assert first.problem.startswith("the last comparison failed: ")
    assert due() == sorted(set(due()))


def test_a_comparison_by_hand_of_all_tables_moves_what_is_due_and_one_of_a_table_does_not(
    tmp_path: Path,
) -> None:
    due: list[int] = []

    def hear(report: Report) -> None:
        if isinstance(report, GaugesRead):
            due.append(report.value)

    async def compare_by_hand(world: World, *tables: str) -> None:
        options = {"differing": "0", "rows": "1", "sides": "sql", "problem": ""}
        signals = [Signal(VERIFIED, table, f"by-hand-{table}", options) for table in tables]
        await write_control(world.log, "shop", signals, now_ms=world.clock.now_ms() + HALF_HOUR_MS)

    async def story(world: World) -> None:
        await world.run()
        items, others = sorted(await verify_once(world.loaded, world.log, clock=world.clock))
        desired = DesiredState(world.log, "shop")
        await desired.load()
        run = replace(
            task_run(world.loaded, VERIFY, world.log, report=hear, until_end=False),
            desired=lambda: desired.now,
        )
        tasks = [asyncio.ensure_future(each) for each in (checked_first()(run), desired.follow())]
        await wait_until(lambda: len(due) > 1, *tasks)
        await compare_by_hand(world, items)
        own = len(due) + 2
        await wait_until(lambda: len(due) >= own, *tasks)
        assert due[-1] - due[0] < HALF_HOUR_MS
        while due[-1] - due[0] < HALF_HOUR_MS:  # its own may come right after
            await compare_by_hand(world, items, others)
            seen = len(due)
            await wait_until(lambda: len(due) > seen, *tasks)  # noqa: B023
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    execute(
        tmp_path / "source.db",
        "CREATE TABLE items (id INTEGER PRIMARY KEY)",
        "CREATE TABLE others (id INTEGER PRIMARY KEY)",
        "INSERT INTO items VALUES (1)",
        "INSERT INTO others VALUES (1)",
    )
    tell(tmp_path, SECONDLY, story)


def test_verify_is_a_task_only_where_it_is_wanted_and_something_runs_on(tmp_path: Path) -> None:
    async def story(world: World) -> LoadedPipeline:
        return world.loaded

    daily = tell(tmp_path, PIPELINE.replace("SCHEDULE", '{cron: "0 3 * * *"}'), story)
    never = tell(tmp_path, PIPELINE.replace("verify: SCHEDULE", ""), story)

    assert [job.name for job in jobs_of(daily)] == ["source", "sql", VERIFY]
    assert VERIFY not in [job.name for job in jobs_of(daily, until_end=True)]
    assert VERIFY not in [job.name for job in jobs_of(never)]
