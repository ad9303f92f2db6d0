"""A paused source holds on to nothing, and goes on where the log says when it is resumed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from headwater.core_log.foundation.errors import PositionLost, SourceUnavailable
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.loops.ingest import signals as pause_module
from headwater.pipelines.loops.ingest.signals import nothing, unless_paused
from headwater.pipelines.reports import Report, StateChanged, TaskState


@dataclass
class Reading:
    """A source that is only watched."""

    desired: DesiredTaskState = field(default_factory=lambda: DesiredTaskState("shop"))
    reports: list[Report] = field(default_factory=list)
    started: int = 0
    released: int = 0
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    is_let_go: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        self.started += 1
        self.is_open.set()
        try:
            await self.may_end.wait()
        finally:
            self.released += 1
            self.is_let_go.set()

    def begin(
        self,
        read: Callable[[], Awaitable[None]] | None = None,
        watch: Callable[[], Awaitable[None]] = nothing,
    ) -> "asyncio.Future[None]":
        return asyncio.ensure_future(
            unless_paused(
                read or self.read,
                pipeline="shop",
                task="source",
                desired=lambda: self.desired,
                report=self.reports.append,
                watch=watch,
            )
        )

    def pause(self, *, is_paused: bool = True) -> None:
        self.desired = DesiredTaskState("shop", is_paused=is_paused)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause_module, "POLL_S", 0.001)


async def test_a_pause_releases_the_source_and_a_resume_begins_it_again() -> None:
    source = Reading()
    running = source.begin()
    await source.is_open.wait()

    source.pause()
    await source.is_let_go.wait()
    source.is_open.clear()
    source.pause(is_paused=False)
    await source.is_open.wait()
    source.may_end.set()
    await running

    assert (source.started, source.released) == (2, 2)
    assert source.reports == [StateChanged("shop", "source", "", TaskState.PAUSED)]


async def test_a_source_that_is_paused_from_the_first_is_not_touched() -> None:
    source = Reading()
    source.pause()
    running = source.begin()
    while not source.reports:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)

    running.cancel()
    await asyncio.wait([running])

    assert source.started == 0
    assert running.cancelled()


async def test_a_paused_source_is_watched_until_it_is_resumed() -> None:
    source, watched = Reading(), list[str]()

    async def watch() -> None:
        watched.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            watched.append("ended")

    source.pause()
    running = source.begin(watch=watch)
    while not watched:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    at_rest, begun = list(watched), source.started
    source.pause(is_paused=False)
    await source.is_open.wait()
    source.may_end.set()
    await running

    assert (at_rest, begun) == (["begun"], 0)
    assert watched == ["begun", "ended"]


async def test_a_position_that_is_lost_during_a_pause_fails_the_task() -> None:
    async def watch() -> None:
        raise PositionLost("the slot was dropped")

    source = Reading()
    source.pause()

    with pytest.raises(PositionLost):
        await source.begin(watch=watch)


async def test_a_source_that_fails_fails_its_task() -> None:
    async def fail() -> None:
        raise SourceUnavailable("nobody answers")

    with pytest.raises(SourceUnavailable):
        await Reading().begin(fail)


async def test_ending_the_task_releases_the_source_first() -> None:
    source = Reading()
    running = source.begin()
    await source.is_open.wait()

    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert source.released == 1
