"""A sink that swaps in the new table of one that it refused is not fenced by its own swap."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.clock import Clock, SystemClock
from headwater.core_log.foundation.errors import SinkRejected, SinkUnavailable
from headwater.pipelines.loops.ingest.ingest import SOURCE
from headwater.pipelines.reports import Report, StateChanged, TaskState
from headwater.pipelines.running.first_checks import checked_first
from headwater.sinks.spark.sink import SparkSink
from headwater.sinks.sql.sink import SqlSink
from tests.connectors.postgres.schema_history.test_cross_over import Crossing, crossing_in
from tests.databases import Guest
from tests.pipelines.task_runs import task_run

SINKS: dict[str, Any] = {"sql": SqlSink, "spark": SparkSink}
LATER_MS = 3_600_000
"""By then whatever is held has been due for another try."""
TURN_S = 1.5
"""In this time a delivery looks for new work, and applies it."""


class MovedClock(SystemClock):
    later_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.later_ms


class Running:
    """A sink that runs until it is let go."""

    def __init__(self, world: Crossing, sink: str, clock: Clock) -> None:
        self.tables: list[StateChanged] = []
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(
            checked_first()(
                task_run(
                    world.loaded, sink, world.log, clock=clock, report=self._hear, until_end=False
                )
            )
        )

    def _hear(self, report: Report) -> None:
        if isinstance(report, StateChanged) and report.table:
            self.tables.append(report)
            self._changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Raises what the sink has ended with."""
        while not is_so():
            changing = asyncio.create_task(self._changed.wait())
            await asyncio.wait([self._task, changing], return_when=asyncio.FIRST_COMPLETED)
            await let_go(changing)
            if self._task.done():
                self._task.result()
            self._changed.clear()

    @property
    def state(self) -> TaskState | None:
        return self.tables[-1].state if self.tables else None

    async def end(self) -> None:
        await let_go(self._task)


@pytest.fixture
async def world(guest: Guest, tmp_path: Path) -> AsyncIterator[Crossing]:
    """A table whose new form both targets refuse."""
    async with crossing_in(guest, tmp_path, mode="mirror") as found:
        await found.run()
        await found.run("ALTER TABLE items ALTER a TYPE int USING length(a)", tasks=[SOURCE])
        yield found


@pytest.mark.parametrize("sink", SINKS)
async def test_a_delivery_does_not_meet_the_table_that_is_swapped_in(
    world: Crossing, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    clock, swap, apply = MovedClock(), SINKS[sink].swap, SINKS[sink].apply
    is_swapped, is_over, has_come = False, False, asyncio.Event()

    async def swaps(*given: Any) -> Any:
        """The table is due for another try just now."""
        nonlocal is_swapped, is_over
        found = await swap(*given)
        clock.later_ms, is_swapped = LATER_MS, True
        await asyncio.wait([asyncio.ensure_future(has_come.wait())], timeout=TURN_S)
        await asyncio.sleep(TURN_S / 10)  # whoever is fenced ends
        is_over = True
        return found

    async def applies(*given: Any) -> None:
        comes_late = is_swapped
        try:
            await apply(*given)
        finally:
            if comes_late:
                has_come.set()

    monkeypatch.setattr(SINKS[sink], "swap", swaps)
    monkeypatch.setattr(SINKS[sink], "apply", applies)
    running = Running(world, sink, clock)
    await running.until(lambda: is_over and running.state is TaskState.RUNNING)
    await running.end()

    monkeypatch.undo()
    await world.run("INSERT INTO items VALUES (51, 1, 1)")
    assert world.targets("id, a, b") == world.source("id, a, b")


@pytest.mark.parametrize("sink", SINKS)
async def test_a_table_that_is_being_rebuilt_is_not_tried_again(
    world: Crossing, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    """Its state says that it is rebuilt, for however long that takes."""
    clock, shadow, is_over = MovedClock(), SINKS[sink].shadow, False

    async def shadows(*given: Any) -> Any:
        nonlocal is_over
        clock.later_ms = LATER_MS
        await asyncio.sleep(TURN_S)
        is_over = True
        return await shadow(*given)

    monkeypatch.setattr(SINKS[sink], "shadow", shadows)
    running = Running(world, sink, clock)
    await running.until(lambda: is_over and running.state is TaskState.RUNNING)
    await running.end()

    assert [each.state for each in running.tables] == [TaskState.REBUILDING, TaskState.RUNNING]
    await world.run()
    assert world.targets("id, a, b") == world.source("id, a, b")


@pytest.mark.parametrize("sink", SINKS)
async def test_a_rebuild_that_fails_for_a_moment_goes_on(
    world: Crossing, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    """A run to the end would end without the table."""
    swap, failures = SINKS[sink].swap, [SinkUnavailable("the target is busy")]

    async def swaps(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return await swap(*given)

    monkeypatch.setattr(SINKS[sink], "swap", swaps)
    await world.run()

    assert not failures
    assert not [each for each in world.states if each.state is TaskState.QUARANTINED]
    assert world.targets("id, a, b") == world.source("id, a, b")


@pytest.mark.parametrize("sink", SINKS)
async def test_a_table_whose_swap_fails_is_tried_again_later(
    world: Crossing, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    """The other tables go on meanwhile, and the reason says when."""
    clock, swap, fails = MovedClock(), SINKS[sink].swap, True

    async def swaps(*given: Any) -> Any:
        if fails:
            raise SinkRejected("the target is no good today")
        return await swap(*given)

    monkeypatch.setattr(SINKS[sink], "swap", swaps)
    running = Running(world, sink, clock)
    await running.until(lambda: running.state is TaskState.QUARANTINED)
    held = running.tables[-1].reason
    await asyncio.sleep(TURN_S)
    tried = [each.state for each in running.tables].count(TaskState.REBUILDING)
    fails, clock.later_ms = False, LATER_MS
    await running.until(
        lambda: (
            [each.state for each in running.tables[-2:]]
            == [TaskState.REBUILDING, TaskState.RUNNING]
        )
    )
    await running.end()

    assert tried == 1
    assert "the target is no good today" in held and held.count("next try: ") == 1
    await world.run()
    assert world.targets("id, a, b") == world.source("id, a, b")
