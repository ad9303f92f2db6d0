"""Runs on one log share the tasks of their pipelines: they come, go, stand still and have other
files, and each task runs once, and goes on elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.core_log.client import KafkaLog
from headwater.core_log.client.group_admin import GroupDescription, GroupMember
from headwater.core_log.client.membership import MembershipTerms
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import DirectoryInUse, Fenced, LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.reports import Report, StateChanged, TaskState
from headwater.pipelines.running.assignor import (
    MemberMessage,
    MemberOffer,
    PipelineOffer,
    encode_metadata,
    pipelines_of_members,
)
from headwater.pipelines.running.processes import WorkerProcesses
from headwater.pipelines.running.run import refuse_running_elsewhere
from headwater.pipelines.running.running_pipelines import RunningPipelines
from headwater.pipelines.running.supervisor import RetryPolicy, TaskEnvironment, TaskId
from headwater.pipelines.running.tasks import TaskRunner
from headwater.pipelines.running.worker_group import WorkerGroup
from tests.budget import PATIENCE_S
from tests.pipelines.running.fake_tasks import FakePipeline
from tests.pipelines.running.test_running_pipelines import Theatre, open_log

ALL = {"shop/source", "shop/one", "shop/two"}
SESSION_MS = 1_500


@dataclass(frozen=True)
class WrittenPipeline(FakePipeline):
    digest: str = "first"


def a_file(digest: str = "first", *sinks: str) -> Any:
    acts = dict.fromkeys(("source", *(sinks or ("one", "two"))), "wait")
    return WrittenPipeline("shop", acts, Path(), 0, digest)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    settings = BrokerSettings(
        data=tmp_path, listen="127.0.0.1:0", group_session_timeout_ms_min=1, internal_partitions=1
    )
    log = await EmbeddedLog.open(settings)
    yield log
    await log.close()


class Stage:
    """All members of a test, and what runs on each."""

    def __init__(
        self, log: KafkaLog, new_client: Callable[[], KafkaLog], session_ms: int = SESSION_MS
    ) -> None:
        self.log, self.new_client, self.session_ms = log, new_client, session_ms
        self.runs = dict[str, _Run]()
        self.changed = asyncio.Event()

    @asynccontextmanager
    async def run(self, name: str, *files: Any) -> AsyncIterator["_Run"]:
        async with asyncio.TaskGroup() as tasks:
            run = self.runs[name] = _Run(self, name, tasks)
            await run.begin(files or (a_file(),))
            try:
                yield run
            finally:
                await run.end()
                del self.runs[name]

    def shares(self) -> dict[str, set[str]]:
        return {name: set(run.theatre.running) for name, run in self.runs.items()}

    async def until(self, is_so: Callable[[dict[str, set[str]]], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so(self.shares()):  # noqa: ASYNC110 - several theatres tell of it
                await asyncio.sleep(0.01)

    async def until_shared(self) -> None:
        """Until everything runs once, on all members."""
        await self.until(
            lambda shares: (
                sorted(task for each in shares.values() for task in each) == sorted(ALL)
                and all(shares.values())
            )
        )


class _Run:
    def __init__(self, stage: Stage, name: str, tasks: asyncio.TaskGroup) -> None:
        self.theatre, self.left, self._tasks = Theatre(), list[TaskId](), tasks
        self.pipelines = RunningPipelines(
            tasks, self._hear, on_left=self.left.append, fenced=RetryPolicy(backoff_ms=10)
        )
        around = TaskEnvironment(SystemClock(), Random(7))
        listeners = self.pipelines.listeners()
        self.pipelines.run_in(
            processes=WorkerProcesses(tasks, listeners, around),
            runner=TaskRunner(tasks, self.theatre.run_task, open_log, listeners, around),
            bootstrap=("127.0.0.1:1",),
        )
        self.pipelines.share()
        self.states = dict[str, TaskState]()
        self.group = WorkerGroup(
            stage.new_client(),
            self.pipelines,
            instance=name,
            name=f"host-{name}",
            clock=SystemClock(),
            report=self._hear,
            terms=MembershipTerms(
                "__headwater-workers", "headwater", "t", name, stage.session_ms, 100
            ),
        )
        self.member: asyncio.Task[None] | None = None

    def _hear(self, report: Report) -> None:
        if isinstance(report, StateChanged):
            self.states[report.task] = report.state

    async def begin(self, files: Any) -> None:
        await self.pipelines.apply(files)
        self.member = self._tasks.create_task(self.group.run())

    async def edit(self, file: Any) -> None:
        """As a second `headwater run` on the same directory does."""
        await self.pipelines.apply([file])
        self.group.offer([file], is_newest=True)

    async def end(self) -> None:
        self.group.end_offers()
        await self.pipelines.close()
        assert self.member is not None
        self.member.cancel()
        await asyncio.wait([self.member])


async def test_tasks_are_shared_when_a_run_comes_and_taken_over_when_it_ends(
    log: EmbeddedLog,
) -> None:
    stage = Stage(log, log.beside)
    async with stage.run("a"):
        await stage.until_shared()
        async with stage.run("b"):
            await stage.until_shared()
            assert sorted(map(len, stage.shares().values())) == [1, 2]
        await stage.until(lambda shares: shares == {"a": ALL})


@pytest.mark.slow
async def test_no_task_ever_runs_twice_while_runs_come_and_go(log: EmbeddedLog) -> None:
    stage, twice = Stage(log, log.beside), list[str]()

    async def watch() -> None:
        while True:
            running = [task for each in stage.shares().values() for task in each]
            twice.extend(task for task in set(running) if running.count(task) > 1)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    async with stage.run("a"), stage.run("b"):
        await stage.until_shared()
        async with stage.run("c"):
            await stage.until_shared()
        await stage.until_shared()
    watching.cancel()

    assert not twice


@pytest.mark.slow
async def test_a_run_that_is_cut_off_gives_its_tasks_up_and_comes_back(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(log, log.beside)
    async with stage.run("a") as a, stage.run("b"):
        await stage.until_shared()
        with cut_off(a, monkeypatch):
            await stage.until(lambda shares: shares == {"a": set(), "b": ALL})

        await stage.until_shared()


async def test_a_run_that_is_back_within_its_session_has_its_tasks_and_moves_no_other(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(log, log.beside, session_ms=60_000)
    async with stage.run("b") as b:
        async with stage.run("a") as a:
            await stage.until_shared()
            before, lives = stage.shares(), list(b.theatre.lives)
            monkeypatch.setattr(a.group.log._coordinators, "ask", _no_answer)  # killed: no word
        async with stage.run("a"):
            await stage.until_shared()

            assert stage.shares() == before
            assert b.theatre.lives == lives


@contextmanager
def cut_off(run: "_Run", monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The coordinator of the group does not answer meanwhile."""
    with monkeypatch.context() as cut:
        cut.setattr(run.group.log._coordinators, "ask", _no_answer)
        yield


async def _no_answer(*_: object, **__: object) -> None:
    await asyncio.sleep(0.1)
    raise LogUnavailable("no broker answers")


@pytest.mark.slow
async def test_tasks_go_to_the_runs_with_the_newest_file(log: EmbeddedLog) -> None:
    stage = Stage(log, log.beside)
    async with stage.run("a") as a, stage.run("b") as b:
        await stage.until_shared()

        await a.edit(a_file("second"))
        await stage.until(lambda shares: shares == {"a": ALL, "b": set()})
        assert b.group.share.takes_part == {"shop": False}

        await b.edit(a_file("second"))
        await stage.until_shared()


@pytest.mark.slow
async def test_a_run_that_starts_again_with_a_former_file_takes_nothing_over(
    log: EmbeddedLog,
) -> None:
    stage = Stage(log, log.beside)
    async with stage.run("a"):
        await stage.until_shared()
    async with stage.run("b", a_file("second")) as b:
        await stage.until_shared()
        async with stage.run("a", a_file("first")) as a:
            await stage.until(lambda _: a.group.share.takes_part == {"shop": False})
            assert stage.shares() == {"a": set(), "b": ALL}

            await b.edit(a_file("first"))  # somebody wants it back
            await stage.until_shared()


async def test_runs_with_other_pipelines_leave_each_other_alone(log: EmbeddedLog) -> None:
    other: Any = WrittenPipeline("other", {"source": "wait"}, Path(), 0, "x")
    stage = Stage(log, log.beside)
    async with stage.run("a"), stage.run("b", other):
        await stage.until(lambda shares: shares == {"a": ALL, "b": {"other/source"}})
        assert await pipelines_of_members(log) == {"shop": "host-a", "other": "host-b"}


async def test_pipelines_of_runs_are_known_although_their_group_is_rebalancing() -> None:
    """A broker hides meanwhile what members have written; a drop would take them for at rest."""
    offer = MemberOffer({"shop": PipelineOffer(1, ("source",))}, frozenset())
    said = encode_metadata(MemberMessage(offer, name="host-a", instance="a"))
    described = [
        GroupDescription("", state, (GroupMember("a", "a", "", "", (), metadata),))
        for state, metadata in (
            ("PreparingRebalance", b""),
            ("CompletingRebalance", b""),
            ("Stable", said),
        )
    ]
    log: Any = SimpleNamespace(groups=SimpleNamespace(describe=AnswersInTurn(described)))

    assert await pipelines_of_members(log) == {"shop": "host-a"}


class AnswersInTurn:
    def __init__(self, answers: list[GroupDescription]) -> None:
        self._answers = iter(answers)

    async def __call__(self, _: str) -> GroupDescription:
        return next(self._answers)


async def test_a_fenced_task_that_is_still_ours_begins_again(log: EmbeddedLog) -> None:
    stage = Stage(log, log.beside)
    async with stage.run("a") as a:
        await stage.until_shared()
        before = a.theatre.lives.count("shop/one")
        a.theatre.running["shop/one"].set_exception(Fenced("another one was here"))

        await stage.until(lambda _: a.theatre.lives.count("shop/one") == before + 1)
        await stage.until_shared()


async def test_a_run_to_the_end_is_refused_while_others_share_the_pipeline(
    log: EmbeddedLog,
) -> None:
    stage = Stage(log, log.beside)
    await refuse_running_elsewhere(log, [a_file()])
    async with stage.run("a"):
        await stage.until_shared()
        with pytest.raises(DirectoryInUse, match="already running"):
            await refuse_running_elsewhere(log, [a_file()])
        # the same directory begins after a kill, whose membership lasts for some seconds
        await refuse_running_elsewhere(log, [a_file()], besides="a")
    await refuse_running_elsewhere(log, [a_file()])
