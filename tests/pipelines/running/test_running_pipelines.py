"""What an edited file changes is started again, and nothing else is touched."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.core_log.foundation.errors import DirectoryInUse
from headwater.pipelines.reports import Report, StateChanged, TaskRun, TaskState
from headwater.pipelines.running.processes import WorkerProcesses
from headwater.pipelines.running.running_pipelines import RunningPipelines
from headwater.pipelines.running.supervisor import TaskEnvironment
from headwater.pipelines.running.tasks import Listeners, TaskAssignment, TaskRunner
from tests.budget import PATIENCE_S
from tests.fakes import SimulatedClock
from tests.pipelines.running.fake_tasks import FakePipeline


class QuietLog:
    """Nothing is ever wanted of its pipelines."""

    async def ensure_topic(self, *topics: object) -> None: ...

    async def bounds(self, partitions: Any) -> Any:
        from headwater.core_log.model.log import Bounds

        return {each: Bounds(0, 0, 0, -1, -1) for each in partitions}

    async def fetch(self, wanted: Any, **_: Any) -> Any:
        await asyncio.Event().wait()


class Theatre:
    """Tasks that wait until they are told how to end."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Future[None]] = {}
        self.lives: list[str] = []
        self.reports: list[Report] = []
        self._changed = asyncio.Event()

    async def run_task(self, task: TaskRun) -> None:
        name = f"{task.loaded.name}/{task.name}" + ("!" if task.until_end else "")
        self.lives.append(name)
        self.running[name] = asyncio.get_running_loop().create_future()
        self._changed.set()
        try:
            await self.running[name]
        finally:
            del self.running[name]
            self._changed.set()

    async def until_running(self, *names: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.running.keys() != set(names):
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def open_log(_: object) -> AsyncIterator[Any]:
    yield QuietLog()


@asynccontextmanager
async def running(theatre: Theatre) -> AsyncIterator[RunningPipelines]:
    async with asyncio.TaskGroup() as tasks:
        pipelines = RunningPipelines(tasks, theatre.reports.append)
        around = TaskEnvironment(SimulatedClock(), Random(7))
        listeners = pipelines.listeners()
        pipelines.run_in(
            processes=WorkerProcesses(tasks, listeners, around),
            runner=TaskRunner(tasks, theatre.run_task, open_log, listeners, around),
            bootstrap=("127.0.0.1:1",),
        )
        try:
            yield pipelines
        finally:
            await pipelines.close()


def a_file(**acts: str) -> Any:
    return FakePipeline("shop", acts, Path(), workers=0)


async def test_modules_of_a_task_are_loaded_before_the_log_is_asked_anything() -> None:
    theatre, told = Theatre(), list[str]()

    def prepare(loaded: Any, task: str) -> None:
        told.append(f"{loaded.name}/{task} prepared")

    @asynccontextmanager
    async def told_log(_: object) -> AsyncIterator[Any]:
        told.append("log opened")
        yield QuietLog()

    async with asyncio.TaskGroup() as tasks:
        listeners = Listeners(theatre.reports.append, lambda _: None, lambda _: None)
        around = TaskEnvironment(SimulatedClock(), Random(7))
        runner = TaskRunner(tasks, theatre.run_task, told_log, listeners, around, prepare=prepare)
        runner.start(TaskAssignment(a_file(source="a"), "source"))
        await theatre.until_running("shop/source")
        await runner.stop_all()

    assert told == ["shop/source prepared", "log opened"]


async def test_a_file_without_changes_changes_nothing() -> None:
    theatre = Theatre()
    async with running(theatre) as it:
        await it.apply([a_file(source="a", sql="b")])
        await theatre.until_running("shop/source", "shop/sql")

        applied = await it.apply([a_file(source="a", sql="b")])

        assert applied.as_json() == {
            "started": [],
            "stopped": [],
            "unchanged": ["shop/source", "shop/sql"],
        }
        assert len(theatre.lives) == 2


@dataclass(frozen=True)
class EditedPipeline(FakePipeline):
    key: str = ""

    @property
    def content(self) -> Mapping[str, Any]:
        return {**super().content, self.key: "edited"}


@pytest.mark.parametrize(
    ("key", "is_of_tasks"),
    [("workers", False), ("tests", False), ("http", False), ("notify", False), ("errors", True)],
)
async def test_an_edited_key_of_the_process_starts_no_task_again(
    key: str, is_of_tasks: bool
) -> None:
    theatre = Theatre()
    async with running(theatre) as pipelines:
        await pipelines.apply([a_file(source="a", sql="a")])
        await theatre.until_running("shop/source", "shop/sql")

        edited: Any = EditedPipeline("shop", {"source": "a", "sql": "a"}, Path(), 0, key)
        told = await pipelines.apply([edited])
        await theatre.until_running("shop/source", "shop/sql")

    assert bool(told.started) is is_of_tasks
    assert len(theatre.lives) == (4 if is_of_tasks else 2)


async def test_only_what_was_edited_starts_again_and_what_was_taken_out_stops() -> None:
    theatre = Theatre()
    async with running(theatre) as it:
        await it.apply([a_file(source="a", sql="b", files="c")])
        await theatre.until_running("shop/source", "shop/sql", "shop/files")

        applied = await it.apply([a_file(source="a", sql="other", kafka="d")])

        await theatre.until_running("shop/source", "shop/sql", "shop/kafka")
        assert applied.as_json() == {
            "started": ["shop/sql", "shop/kafka"],
            "stopped": ["shop/files"],
            "unchanged": ["shop/source"],
        }
        assert theatre.lives.count("shop/source") == 1


async def test_a_task_that_starts_again_is_never_seen_as_one_that_has_ended() -> None:
    theatre = Theatre()
    async with running(theatre) as it:
        await it.apply([a_file(source="a", sql="b")])
        await theatre.until_running("shop/source", "shop/sql")

        await it.apply([a_file(source="other", sql="another")])

        told = [each for each in theatre.reports if isinstance(each, StateChanged)]
        last = {each.task: each.state for each in told}
        assert last == {"source": TaskState.STARTING, "sql": TaskState.STARTING}


async def test_a_task_that_had_ended_begins_again() -> None:
    theatre = Theatre()
    async with running(theatre) as it:
        await it.apply([a_file(source="a", sql="b")])
        await theatre.until_running("shop/source", "shop/sql")
        for life in theatre.running.values():
            life.set_result(None)
        await it.until_over()

        applied = await it.apply([a_file(source="a", sql="b")])

        await theatre.until_running("shop/source", "shop/sql")
        assert [str(task) for task in applied.started] == ["shop/source", "shop/sql"]


@pytest.mark.parametrize("is_expired", [False, True])
async def test_a_run_whose_tasks_may_run_elsewhere_is_not_over(is_expired: bool) -> None:
    theatre = Theatre()
    async with running(theatre) as it:
        it.share()
        await it.apply([a_file(source="a", sql="b")])
        tasks = frozenset(task for _, each in it.list_shared() for task in each)
        await it.take(tasks)
        await theatre.until_running("shop/source", "shop/sql")
        over = asyncio.create_task(it.until_over())

        losing = asyncio.create_task(it.lose())
        if is_expired:  # its process has waited as long for a word as the group has
            assert it._runner is not None
            await asyncio.sleep(0)
            it._runner.expire()
        await losing
        await asyncio.sleep(0)
        was_over = over.done()
        await it.take(tasks)
        await theatre.until_running("shop/source", "shop/sql")
        over.cancel()

        assert not was_over


async def test_a_run_once_ends_when_the_sinks_have_everything_up_to_the_end_of_the_source() -> None:
    theatre = Theatre()
    async with running(theatre) as it:
        await it.apply([a_file(source="a", sql="b")], until_end=True)
        await theatre.until_running("shop/source!", "shop/sql")

        theatre.running["shop/source!"].set_result(None)
        await theatre.until_running("shop/sql!")
        theatre.running["shop/sql!"].set_result(None)
        ended = await it.until_over()

        assert {str(each.task): each.state for each in ended} == {
            "shop/source": TaskState.DONE,
            "shop/sql": TaskState.DONE,
        }


async def test_a_run_once_is_refused_for_a_pipeline_that_runs_for_good() -> None:
    theatre = Theatre()
    async with running(theatre) as it:
        await it.apply([a_file(source="a", sql="b")])
        await theatre.until_running("shop/source", "shop/sql")

        with pytest.raises(DirectoryInUse, match="already running"):
            await it.apply([a_file(source="a", sql="b")], until_end=True)

        assert len(theatre.running) == 2


async def test_the_end_stops_sources_before_sinks() -> None:
    theatre = Theatre()
    async with running(theatre) as it:
        await it.apply([a_file(sql="b", source="a")])
        await theatre.until_running("shop/source", "shop/sql")

    stopped = [
        each.task
        for each in theatre.reports
        if isinstance(each, StateChanged) and each.state is TaskState.STOPPED
    ]
    assert stopped == ["source", "sql"]
