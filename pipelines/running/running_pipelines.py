"""All pipelines that one process answers for: started, changed by an edited file, stopped."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import DirectoryInUse
from headwater.pipelines.file.loader import PROCESS_KEYS
from headwater.pipelines.reports import Report, Reporter, StateChanged, TaskState
from headwater.pipelines.running.processes import TaskPlacement, WorkerProcesses
from headwater.pipelines.running.supervisor import Backoff, RetryPolicy, TaskEnded, TaskId
from headwater.pipelines.running.tasks import SOURCE, Listeners, TaskAssignment, TaskRunner, jobs_of

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline

logger = logging.getLogger(__name__)

STOP_S_MAX = 30.0
"""How long a task that is taken elsewhere may finish what it has begun; after that the other one
begins beside it, and fences it."""


WHEN_FENCED = RetryPolicy()


@dataclass(frozen=True, slots=True)
class AppliedFile:
    """The outcome for the tasks of a file that was handed over."""

    started: tuple[TaskId, ...] = ()
    stopped: tuple[TaskId, ...] = ()
    unchanged: tuple[TaskId, ...] = ()

    def as_json(self) -> dict[str, list[str]]:
        return {
            "started": [str(task) for task in self.started],
            "stopped": [str(task) for task in self.stopped],
            "unchanged": [str(task) for task in self.unchanged],
        }


@dataclass(slots=True)
class _Running:
    loaded: "LoadedPipeline"
    until_end: bool
    jobs: dict[TaskId, TaskAssignment]
    ended: dict[TaskId, TaskEnded] = field(default_factory=dict)
    finishing: set[TaskId] = field(default_factory=set)
    """Sinks on their way into the life in which they end; that they stop for it is no news."""

    @property
    def is_over(self) -> bool:
        return self.jobs.keys() <= self.ended.keys()


class RunningPipelines:
    """Each pipeline by its name, in worker processes or, where its file says `workers: 0`, here."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        report: Reporter,
        *,
        on_left: Callable[[TaskId], None] = lambda _: None,
        fenced: RetryPolicy = WHEN_FENCED,
    ) -> None:
        """`on_left` is told of each task that runs elsewhere from now on; `fenced` says when a task
        of ours begins again that was fenced."""
        self._tasks, self._report, self._on_left = tasks, report, on_left
        self._when_fenced = fenced
        self._mine: frozenset[TaskId] | None = None
        """The tasks that are to run here; None where all are."""
        self._here: set[TaskId] = set()
        """Tasks that were started here and not stopped, those that have ended among them."""
        self._fenced: dict[TaskId, Backoff] = {}
        self._bootstrap: tuple[str, ...] = ()
        self._pipelines: dict[str, _Running] = {}
        self._processes: WorkerProcesses | None = None
        self._runner: TaskRunner | None = None
        self._applying = asyncio.Lock()
        self._changed = asyncio.Event()

    def listeners(self) -> Listeners:
        """For those who run tasks on behalf of this."""
        return Listeners(self._on_report, self._on_ended, lambda _: self._changed.set())

    def run_in(
        self, *, processes: WorkerProcesses, runner: TaskRunner, bootstrap: tuple[str, ...]
    ) -> None:
        """Must be called before anything is applied. `bootstrap` is where the log is."""
        self._processes, self._runner, self._bootstrap = processes, runner, bootstrap

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._pipelines)

    async def apply(
        self, pipelines: Sequence["LoadedPipeline"], *, until_end: bool = False
    ) -> AppliedFile:
        """Starts what is new, starts again what is changed, or had ended, and leaves the rest
        alone; tasks that a file no longer has are stopped."""
        async with self._applying:
            applied = AppliedFile()
            for loaded in pipelines:
                applied = _concat(applied, await self._apply_one(loaded, until_end=until_end))
            return applied

    async def _apply_one(self, loaded: "LoadedPipeline", *, until_end: bool) -> AppliedFile:
        before = self._pipelines.get(loaded.name)
        jobs = {job.task: job for job in jobs_of(loaded, until_end=until_end)}
        if before is not None and not before.is_over and until_end:
            raise DirectoryInUse(
                "the pipeline is already running without --once",
                pipeline=loaded.name,
                hint=f"headwater status shows the progress of {loaded.name}",
            )
        kept: set[TaskId] = set()
        if before is not None and not until_end and not before.until_end:
            kept = {
                task
                for task in jobs.keys() & before.jobs.keys() - before.ended.keys()
                if is_same(before.loaded, loaded, task.name)
            }
        stopping = [] if before is None else [task for task in before.jobs if task not in kept]
        for task in sorted(stopping, key=lambda task: task.name != SOURCE):
            await self._stop(task)
        self._pipelines[loaded.name] = _Running(loaded, until_end, jobs)
        starting = [job for job in jobs.values() if job.task not in kept]
        for job in starting:
            self._start(job)
        gone = tuple(task for task in stopping if task not in jobs)
        return AppliedFile(tuple(job.task for job in starting), gone, tuple(sorted(kept)))

    def share(self) -> None:
        """From now on others run tasks of these pipelines, too, and here run those of `take`."""
        self._mine = frozenset()

    @property
    def here(self) -> frozenset[TaskId]:
        """The tasks that run here, or have not yet ended; those of a run to an end are never
        shared."""
        return frozenset(self._here - self._until_end)

    def list_shared(self) -> "list[tuple[LoadedPipeline, tuple[TaskId, ...]]]":
        """The pipelines whose tasks may run anywhere, with their tasks."""
        return [
            (each.loaded, tuple(each.jobs))
            for each in self._pipelines.values()
            if not each.until_end
        ]

    async def take(self, tasks: frozenset[TaskId]) -> None:
        """Starts and stops tasks until just these run here. Returns when the others have ended; a
        later call comes first."""
        self._mine = tasks
        async with self._applying:
            if self._mine is not tasks:
                return
            for job in list(self._jobs()):
                if job.task in tasks and job.task not in self._here:
                    self._fenced.pop(job.task, None)
                    self._start(job)
            await self._let_go(self.here - tasks)

    def leave(self, task: TaskId) -> None:
        """A task that has not run here runs elsewhere."""
        self._on_left(task)

    async def lose(self) -> None:
        """All tasks that run here may run elsewhere from now on: they end at once."""
        self._mine = frozenset()
        await self._let_go(self.here)

    async def _let_go(self, tasks: Collection[TaskId]) -> None:
        stops = {asyncio.ensure_future(self._stop(task)): task for task in tasks}
        if not stops:
            return
        _, late = await asyncio.wait(stops, timeout=STOP_S_MAX)
        for each in late:
            each.cancel()
            logger.warning("%s does not end; another run goes on without waiting", stops[each])
        for task in tasks:
            self._here.discard(task)
            if (running := self._pipelines.get(task.pipeline)) is not None:
                running.ended.pop(task, None)
            self._on_left(task)

    def _jobs(self) -> Iterator[TaskAssignment]:
        for running in self._pipelines.values():
            yield from running.jobs.values()

    @property
    def _until_end(self) -> set[TaskId]:
        return {task for each in self._pipelines.values() if each.until_end for task in each.jobs}

    async def until_over(self) -> list[TaskEnded]:
        """Returns once nothing runs any more: how each task has ended."""
        while not self._pipelines or not all(each.is_over for each in self._pipelines.values()):
            self._changed.clear()
            await self._changed.wait()
        return [ended for each in self._pipelines.values() for ended in each.ended.values()]

    async def close(self) -> None:
        """Sources first; what is in flight is finished."""
        assert self._processes is not None, "close follows run_in"
        assert self._runner is not None, "close follows run_in"
        if self._mine is not None:
            self._mine = frozenset()
        await asyncio.gather(self._runner.stop_all(), self._processes.close())

    def _start(self, job: TaskAssignment) -> None:
        assert self._processes is not None, "apply follows run_in"
        assert self._runner is not None, "apply follows run_in"
        if self._mine is not None and not job.until_end and job.task not in self._mine:
            return
        self._here.add(job.task)
        # Until its process says so itself, whoever looks on would take it for one that has ended.
        self._on_report(StateChanged(job.task.pipeline, job.task.name, "", TaskState.STARTING))
        workers = job.loaded.spec.workers
        if workers == 0:
            self._runner.start(job)
            return
        count = process_count() if workers == "auto" else workers
        self._processes.start(TaskPlacement(job, self._bootstrap), process_count=count)

    async def _stop(self, task: TaskId) -> None:
        assert self._processes is not None, "apply follows run_in"
        assert self._runner is not None, "apply follows run_in"
        await self._runner.stop(task)
        await self._processes.stop(task)
        self._here.discard(task)

    def _on_report(self, report: Report) -> None:
        running = self._pipelines.get(report.pipeline)
        if running is not None and isinstance(report, StateChanged):
            task = TaskId(report.pipeline, report.task)
            if report.state is TaskState.STARTING:
                running.ended.pop(task, None)
                running.finishing.discard(task)
            elif report.state is TaskState.STOPPED and task in running.finishing:
                return
        self._report(report)

    def _on_ended(self, ended: TaskEnded) -> None:
        running = self._pipelines.get(ended.task.pipeline)
        if running is None or ended.task not in running.jobs:
            return
        if self._mine is not None and not running.until_end:
            if ended.task not in self._mine:
                return  # it may run elsewhere, and is not over
            if ended.kind == FENCED:
                self._tasks.create_task(self._start_again(ended))
                return
        running.ended[ended.task] = ended
        self._changed.set()
        is_source = ended.task.name == SOURCE
        if running.until_end and is_source:
            self._tasks.create_task(self._finish_sinks(running))

    async def _start_again(self, ended: TaskEnded) -> None:
        """A task that was fenced is still ours: somebody ran it who did not know that yet."""
        task = ended.task
        backoff = self._fenced.setdefault(task, Backoff(self._when_fenced, SystemRandom()))
        self._on_report(StateChanged(*task, "", TaskState.RETRYING, ended.reason))
        await asyncio.sleep(backoff.next_ms() / 1_000)
        async with self._applying:
            running = self._pipelines.get(task.pipeline)
            job = None if running is None else running.jobs.get(task)
            if job is not None and task in self.here and task in (self._mine or ()):
                await self._stop(task)
                self._start(job)

    async def _finish_sinks(self, running: _Running) -> None:
        """Everything is in the log now: each sink ends when it has applied all of it."""
        async with self._applying:
            if self._pipelines.get(running.loaded.name) is not running:
                return
            for task, job in running.jobs.items():
                if task.name != SOURCE and task not in running.ended:
                    running.finishing.add(task)
                    await self._stop(task)
                    running.jobs[task] = TaskAssignment(job.loaded, job.name, until_end=True)
                    self._start(running.jobs[task])


FENCED = "Fenced"
"""Name of the error's class of a task that found another one in its place."""


def process_count() -> int:
    """`workers: auto`: the broker keeps a core for itself."""
    return max(len(os.sched_getaffinity(0)) - 1, 1)


def is_same(before: "LoadedPipeline", after: "LoadedPipeline", task: str) -> bool:
    """Whether an edit leaves this task as it was. Keys outside of sources and sinks concern all of
    them, except those of the process: they count for what is started later, or at once."""
    shared = [
        {key: value for key, value in each.content.items() if key not in PROCESS_KEYS}
        for each in (before, after)
    ]
    return (
        shared[0] == shared[1]
        and before.directory == after.directory
        and _content(before, task) == _content(after, task)
    )


def _content(loaded: "LoadedPipeline", task: str) -> object:
    parts: list[LoadedPart] = [loaded.source, *loaded.sinks]
    return next((part.content for part in parts if part.name == task), None)


def _concat(one: AppliedFile, other: AppliedFile) -> AppliedFile:
    return AppliedFile(
        one.started + other.started, one.stopped + other.stopped, one.unchanged + other.unchanged
    )
