"""A sink that is stopped, by a rebuild and by its run, ends behind the slice that it applies."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.core_log.client.gather import in_thread
from headwater.pipelines.reports import TaskRun
from headwater.pipelines.running import sink_task
from headwater.pipelines.running.sink_task import run_sink
from headwater.pipelines.time_travel.rebuild import schema_change

TABLE = "public.orders"


class SlicedRun:
    """A delivery whose slice cannot be broken off, and a rebuild that stops it before its swap."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slice_may_end = threading.Event()
        self.is_stopping = asyncio.Event()
        self.events: list[str] = []
        loaded = SimpleNamespace(name="shop", sinks=[SimpleNamespace(name="lake")])
        facts = {"loaded": loaded, "name": "lake", "log": None, "clock": None}
        self.task = cast("TaskRun", SimpleNamespace(**facts, report=lambda _: None))
        monkeypatch.setattr(sink_task, "run_task", self._deliver)
        monkeypatch.setattr(schema_change, "cross_over", self._cross_over)

    def _apply(self) -> None:
        self.slice_may_end.wait()
        self.events.append("slice ended")

    async def _deliver(self, _: TaskRun, *, rebuilds: Any, **others: Any) -> None:
        rebuilds.put(TABLE, "another type")
        try:
            await in_thread(self._apply)
        finally:
            self.events.append("sink closed")

    async def _cross_over(self, *_: Any, stop: Any, **others: Any) -> str:
        self.is_stopping.set()
        await stop()
        self.events.append("swapped")
        return ""


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_sink_stopped_while_a_rebuild_stops_its_delivery_ends_behind_its_slice(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    run = SlicedRun(monkeypatch)
    running = asyncio.ensure_future(run_sink(run.task))
    await run.is_stopping.wait()

    for _ in range(times):
        running.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
    is_waiting, before = not running.done(), list(run.events)
    run.slice_may_end.set()
    await asyncio.wait([running])

    assert is_waiting
    assert before == []
    assert run.events == ["slice ended", "sink closed"]
    assert running.cancelled()
