"""Worker processes are started again when they die, and never outlive their owner."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.journal.control import RESTART, Signal, write_control
from headwater.pipelines.reports import Report, StateChanged, TaskState
from headwater.pipelines.running.processes import TaskPlacement, WorkerProcesses
from headwater.pipelines.running.supervisor import TaskEnded, TaskEnvironment, TaskId
from headwater.pipelines.running.tasks import Listeners, TaskAssignment
from tests.budget import PATIENCE_S
from tests.pipelines.run_process import ROOT
from tests.pipelines.running.fake_tasks import COMMAND, FakePipeline


@dataclass
class Heard:
    """Everything that worker processes said."""

    reports: list[Report] = field(default_factory=list)
    ended: list[TaskEnded] = field(default_factory=list)
    gone: list[TaskId] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def listeners(self) -> Listeners:
        return Listeners(
            lambda report: self._add(self.reports, report),
            lambda ended: self._add(self.ended, ended),
            lambda task: self._add(self.gone, task),
        )

    def _add(self, heard: list[Any], news: object) -> None:
        heard.append(news)
        self._news.set()

    async def until(self, state: TaskState, task: TaskId, times: int = 1) -> list[StateChanged]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = [
                    each
                    for each in self.reports
                    if isinstance(each, StateChanged)
                    and (each.pipeline, each.task, each.state) == (*task, state)
                ]
                if len(found) >= times:
                    return found
                self._news.clear()
                await self._news.wait()

    async def until_running_in(self, task: TaskId, processes: WorkerProcesses) -> None:
        """A process that lives."""
        times = 1
        while True:
            found = await self.until(TaskState.RUNNING, task, times)
            if int(found[-1].reason) in processes.pids:
                return
            times = len(found) + 1


@dataclass
class Stage:
    """A log, worker processes over it, and what they said."""

    log: EmbeddedLog
    processes: WorkerProcesses
    heard: Heard
    notes: Path

    def start(self, acts: Mapping[str, str], *, process_count: int = 1) -> dict[str, TaskId]:
        loaded: Any = FakePipeline("shop", acts, self.notes)
        for name in acts:
            posting = TaskPlacement(TaskAssignment(loaded, name), (self.log.endpoint,))
            self.processes.start(posting, process_count=process_count)
        return {name: TaskId("shop", name) for name in acts}


async def no_pause(seconds: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    settings = BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0", internal_partitions=1)
    log, heard = await EmbeddedLog.open(settings), Heard()
    around = TaskEnvironment(SystemClock(), Random(7), no_pause)
    try:
        async with asyncio.TaskGroup() as tasks:
            processes = WorkerProcesses(tasks, heard.listeners(), around, command=COMMAND)
            try:
                yield Stage(log, processes, heard, tmp_path)
            finally:
                await processes.close()
    finally:
        await log.close()


@pytest.mark.slow
async def test_stopping_a_task_waits_until_it_has_cleaned_up(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        tasks = it.start({"source": "wait", "sql": "wait"})
        await it.heard.until(TaskState.RUNNING, tasks["sql"])
        await it.heard.until(TaskState.RUNNING, tasks["source"])

        await it.processes.stop(tasks["sql"])

        assert (tmp_path / "sql-cleaned").exists()
        assert not (tmp_path / "source-cleaned").exists()
        assert it.heard.gone == [tasks["sql"]]


@pytest.mark.slow
async def test_tasks_run_in_other_processes_where_sources_stop_before_sinks(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as it:
        tasks = it.start({"sql": "wait", "source": "wait"}, process_count=2)

        found = [await it.heard.until(TaskState.RUNNING, task) for task in tasks.values()]

    pids = {int(running[0].reason) for running in found}
    assert len({os.getpid(), *pids}) == 3
    times = {name: int((tmp_path / f"{name}-cleaned").read_text()) for name in tasks}
    assert times["source"] < times["sql"]


@pytest.mark.slow
async def test_a_killed_process_is_started_again_with_its_tasks(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        tasks = it.start({"source": "wait", "sql": "wait"})
        for task in tasks.values():
            await it.heard.until(TaskState.RUNNING, task)
        first = it.processes.pids

        os.kill(first[0], signal.SIGKILL)
        for task in tasks.values():
            await it.heard.until(TaskState.RUNNING, task, times=2)

        retrying = await it.heard.until(TaskState.RETRYING, tasks["sql"])
        assert retrying[0].reason == "the worker process was killed by SIGKILL"
        assert it.processes.pids != first


@pytest.mark.slow
async def test_a_task_that_kills_its_process_is_told_apart_from_its_neighbours(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as it:
        tasks = it.start({"source": "wait", "sql": "die", "files": "wait"})

        (given_up,) = await it.heard.until(TaskState.QUARANTINED, tasks["sql"])

        assert given_up.reason == (
            "the worker process was killed by SIGKILL, 3 times in ten minutes"
        )
        assert [each.task for each in it.heard.ended] == [tasks["sql"]]
        for name in ("source", "files"):
            await it.heard.until_running_in(tasks[name], it.processes)


@pytest.mark.slow
async def test_tasks_running_and_given_up_begin_afresh_once_per_wish(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        tasks = it.start({"source": "fail", "sql": "wait"})
        await it.heard.until(TaskState.QUARANTINED, tasks["source"])
        await it.heard.until(TaskState.RUNNING, tasks["sql"])

        for times, id in ((2, "a1"), (3, "a2")):
            await write_control(it.log, "shop", [Signal(RESTART, "", id)], now_ms=0)
            await it.heard.until(TaskState.QUARANTINED, tasks["source"], times)
            found = await it.heard.until(TaskState.RUNNING, tasks["sql"], times)
            assert len(found) == times


OWNER = """
import asyncio, sys
from pathlib import Path
from tests.pipelines.running.test_processes import TaskState, stage

async def main():
    async with stage(Path(sys.argv[1])) as it:
        for name, task in it.start({sys.argv[2]: sys.argv[3]}).items():
            found = await it.heard.until(TaskState.RUNNING, task)
            sys.stdout.write(f"{found[0].reason}\\n")  # print makes two writes, where unbuffered
            sys.stdout.flush()
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("act", "said"), [("speak", "a row for stdout"), ("hang", "")])
def test_no_worker_outlives_a_killed_owner_and_what_it_printed_was_the_owners_output(
    tmp_path: Path, act: str, said: str
) -> None:
    """However busy it is: a hanging one has two seconds."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path, "console", act],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    lines = {owner.stdout.readline().strip() for _ in range(2 if said else 1)}

    owner.kill()
    owner.communicate()

    (worker,) = lines - {said}
    until_gone(int(worker))
    assert not said or (tmp_path / "console-cleaned").exists()


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} ends by itself"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """An ended process that nobody has waited for yet does not count."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
