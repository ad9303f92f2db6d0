"""A task that was given up begins afresh when a person says so, however soon; and comparisons are
told for as long as any task runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.core_log.foundation.errors import SinkRejected, SourceRejected
from headwater.pipelines.journal.control import (
    RESTART,
    VERIFIED,
    Signal,
    control_topic,
    write_control,
)
from headwater.pipelines.reports import (
    GaugesRead,
    Report,
    StateChanged,
    TableVerified,
    TaskRun,
    TaskState,
)
from headwater.pipelines.running.supervisor import TaskEnvironment
from headwater.pipelines.running.tasks import Listeners, TaskAssignment, TaskRunner
from tests.fakes import SimulatedClock
from tests.memory_log import MemoryLog
from tests.pipelines.running.fake_tasks import FakePipeline

STEPS = 1_000
"""Of the loop, after which nothing more happens by itself."""


@pytest.mark.parametrize("steps", range(6))
async def test_a_restart_right_after_the_report_of_a_quarantine_is_heard(steps: int) -> None:
    log, given_up = MemoryLog(), asyncio.Event()
    await log.ensure_topic(control_topic())
    reports: list[Report] = []

    def hear(report: Report) -> None:
        reports.append(report)
        if isinstance(report, StateChanged) and report.state is TaskState.QUARANTINED:
            given_up.set()

    @asynccontextmanager
    async def open_log(_: object) -> AsyncIterator[Any]:
        yield log

    async def fail(_: TaskRun) -> None:
        raise SinkRejected("the table has another key")

    loaded: Any = FakePipeline("shop", {"sql": "fail"}, Path(), workers=0)
    async with asyncio.TaskGroup() as tasks:
        listeners = Listeners(hear, lambda _: None, lambda _: None)
        runner = TaskRunner(
            tasks, fail, open_log, listeners, TaskEnvironment(SimulatedClock(), Random(7))
        )
        runner.start(TaskAssignment(loaded, "sql"))
        await given_up.wait()
        for _ in range(steps):
            await asyncio.sleep(0)
        await write_control(log, "shop", [Signal(RESTART, "", "a1")], now_ms=0)
        for _ in range(STEPS):
            await asyncio.sleep(0)
        await runner.stop_all()

    states = [each.state for each in reports if isinstance(each, StateChanged)]
    assert states.count(TaskState.QUARANTINED) == 2


async def test_a_comparison_after_the_end_of_the_source_is_told() -> None:
    log = MemoryLog()
    await log.ensure_topic(control_topic())
    reports: list[Report] = []

    @asynccontextmanager
    async def open_log(_: object) -> AsyncIterator[Any]:
        yield log

    async def run(task: TaskRun) -> None:
        if task.name != "source":
            await asyncio.Event().wait()

    loaded: Any = FakePipeline("shop", {"source": "end", "sql": "run"}, Path(), workers=0)
    result = {"differing": "2", "rows": "5", "sides": "source,sql", "problem": ""}
    async with asyncio.TaskGroup() as tasks:
        listeners = Listeners(reports.append, lambda _: None, lambda _: None)
        around = TaskEnvironment(SimulatedClock(), Random(7))
        runner = TaskRunner(tasks, run, open_log, listeners, around)
        for name in ("source", "sql"):
            runner.start(TaskAssignment(loaded, name))
        for _ in range(STEPS):
            await asyncio.sleep(0)
        await write_control(log, "shop", [Signal(VERIFIED, "shop.orders", "v1", result)], now_ms=9)
        for _ in range(STEPS):
            await asyncio.sleep(0)
        await runner.stop_all()

    found = [each for each in reports if isinstance(each, TableVerified)]
    assert [(each.table, each.differing, each.at_ms) for each in found] == [("shop.orders", 2, 9)]


async def test_a_source_is_watched_while_it_is_quarantined() -> None:
    log, told = MemoryLog(), list[str]()
    await log.ensure_topic(control_topic())
    reports: list[Report] = []

    @asynccontextmanager
    async def open_log(_: object) -> AsyncIterator[Any]:
        yield log

    async def fail(task: TaskRun) -> None:
        told.append(f"{task.name} runs")
        raise SourceRejected("the slot is another's")

    async def watch(task: TaskRun) -> None:
        task.report(GaugesRead("shop", task.name, "retained_wal_bytes", 7, None))
        try:
            await asyncio.Event().wait()
        finally:
            told.append(f"{task.name} is not watched any more")

    loaded: Any = FakePipeline("shop", {"source": "fail", "sql": "fail"}, Path(), workers=0)
    async with asyncio.TaskGroup() as tasks:
        listeners = Listeners(reports.append, lambda _: None, lambda _: None)
        around = TaskEnvironment(SimulatedClock(), Random(7))
        runner = TaskRunner(tasks, fail, open_log, listeners, around, watch=watch)
        for name in ("source", "sql"):
            runner.start(TaskAssignment(loaded, name))
        for _ in range(STEPS):
            await asyncio.sleep(0)
        watched = [each.task for each in reports if isinstance(each, GaugesRead)]
        told.clear()
        await write_control(log, "shop", [Signal(RESTART, "", "a1")], now_ms=0)
        for _ in range(STEPS):
            await asyncio.sleep(0)
        again = [each for each in told if each.startswith("source")]
        await runner.stop_all()

    assert watched == ["source"]
    assert again == ["source is not watched any more", "source runs"]
