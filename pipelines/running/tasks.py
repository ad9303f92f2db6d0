"""Runs tasks of pipelines as tasks on this loop: in a worker process, or all in one process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.core_log.client.gather import let_go, wait_for_end
from headwater.core_log.foundation.errors import Fenced, HeadwaterError
from headwater.core_log.model.log import Log
from headwater.pipelines.journal.control import (
    RESTART,
    VERIFIED,
    DesiredState,
    DesiredTaskState,
    Signal,
    control_topic,
)
from headwater.pipelines.reports import VERIFY, Report, Reporter, TableVerified, TaskRun, TaskState
from headwater.pipelines.running.supervisor import (
    RetryPolicy,
    TaskEnded,
    TaskEnvironment,
    TaskId,
    supervise,
)

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline

logger = logging.getLogger(__name__)

SOURCE = "source"


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    loaded: "LoadedPipeline"
    name: str
    until_end: bool = False
    """The task ends once what is there now has been read, or applied."""

    @property
    def task(self) -> TaskId:
        return TaskId(self.loaded.name, self.name)

    @property
    def is_source(self) -> bool:
        return self.name == SOURCE


def jobs_of(loaded: "LoadedPipeline", *, until_end: bool = False) -> list[TaskAssignment]:
    """Only the source is asked to end: how far the sinks have to go is known when it has."""
    sinks = [TaskAssignment(loaded, part.name) for part in loaded.sinks]
    verify = (
        [TaskAssignment(loaded, VERIFY)] if loaded.spec.verify is not None and not until_end else []
    )
    return [TaskAssignment(loaded, loaded.source.name, until_end), *sinks, *verify]


RunTask = Callable[[TaskRun], Coroutine[Any, Any, None]]
"""`headwater.pipelines.loops.assembly.run_task`, mostly."""
WatchSource = Callable[[TaskRun], Awaitable[None]]
"""`headwater.pipelines.loops.assembly.watch_source`, mostly."""
Prepare = Callable[["LoadedPipeline", str], None]
"""Begins to load what a task will need, while the log is still asked what is wanted of it."""
OpenLog = Callable[["LoadedPipeline"], AbstractAsyncContextManager[Log]]


@dataclass(frozen=True, slots=True)
class Listeners:
    report: Reporter
    ended: Callable[[TaskEnded], None]
    """A task is done, fenced or given up; one that is given up may be resumed."""
    gone: Callable[[TaskId], None]
    """Nothing of the task runs here any more."""


class TaskRunner:
    """Tasks by name. A failing one never takes another with it."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        run_task: RunTask,
        open_log: OpenLog,
        listeners: Listeners,
        around: TaskEnvironment,
        *,
        prepare: Prepare = lambda *_: None,
        watch: WatchSource | None = None,
    ) -> None:
        """`watch` runs while a source is quarantined."""
        self._tasks, self._run_task, self._open_log = tasks, run_task, open_log
        self._listeners, self._around, self._prepare = listeners, around, prepare
        self._watch = watch
        self._running: dict[TaskId, asyncio.Task[None]] = {}

    def start(self, job: TaskAssignment) -> None:
        """Starts a task; a former run of it is stopped before."""
        self._prepare(job.loaded, job.name)
        before = self._running.get(job.task)
        running = self._tasks.create_task(self._run(job, before), name=str(job.task))
        self._running[job.task] = running
        running.add_done_callback(lambda _: self._on_gone(job.task, running))

    async def _run(self, job: TaskAssignment, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            before.cancel()
            await wait_for_end(before)
        await _TaskLives(
            job, self._run_task, self._open_log, self._listeners, self._around, self._watch
        ).run()

    def _on_gone(self, task: TaskId, running: asyncio.Task[None]) -> None:
        if self._running.get(task) is running:
            del self._running[task]
            self._listeners.gone(task)

    async def stop(self, task: TaskId) -> None:
        """Returns when it has cleaned up behind itself."""
        running = self._running.get(task)
        if running is not None:
            running.cancel()
            await wait_for_end(running)

    async def stop_all(self) -> None:
        """Sources first, so that sinks see the end of what they read."""
        for are_sources in (True, False):
            chosen = [task for task in self._running if (task.name == SOURCE) is are_sources]
            await asyncio.gather(*(self.stop(task) for task in chosen))

    def expire(self) -> None:
        """Ends all tasks as if they had been fenced: they may run elsewhere by now."""
        for task in self._running:
            reason = "the process has stood still for too long; another run may have the task"
            self._listeners.ended(TaskEnded(task, TaskState.STOPPED, reason, Fenced.__name__))
        self.cancel_all()

    def cancel_all(self) -> None:
        """All at once, waiting for nobody."""
        for running in self._running.values():
            running.cancel()


class _TaskLives:
    """All lives of one task, from its start until it is stopped or has nothing more to do."""

    def __init__(
        self,
        job: TaskAssignment,
        run_task: RunTask,
        open_log: OpenLog,
        listeners: Listeners,
        around: TaskEnvironment,
        watch: WatchSource | None,
    ) -> None:
        self._job, self._run_task, self._open_log = job, run_task, open_log
        self._listeners, self._watch = listeners, watch
        self._around = replace(around, redact=lambda text: self._job.loaded.redaction.scrub(text))
        self._is_informed = asyncio.Event()
        """Whether it is known what is wanted, so that what changes from now on is news."""
        self._tries = 0
        """How often it was tried again since anything went through it."""

    async def run(self) -> None:
        async with self._open_log(self._job.loaded) as log, asyncio.TaskGroup() as tasks:
            desired = DesiredState(log, self._job.loaded.name)

            async def live(report: Reporter) -> None:
                if not self._is_informed.is_set():
                    await log.ensure_topic(control_topic())
                    await desired.load()
                    self._is_informed.set()
                await self._run_task(self._task_run(log, desired, report))

            beside = [
                tasks.create_task(self._follow(desired)),
                tasks.create_task(self._report_verified(desired)),
            ]
            while await self._supervise(live, desired, tasks, log):
                pass
            for task in beside:
                task.cancel()

    def _task_run(self, log: Log, desired: DesiredState, report: Reporter) -> TaskRun:
        job, clock = self._with_secrets_of_now(), self._around.clock
        return TaskRun(
            job.loaded,
            job.name,
            log,
            lambda: desired.now,
            clock,
            report,
            until_end=job.until_end,
        )

    def _with_secrets_of_now(self) -> TaskAssignment:
        """A password may have been changed since the last connection was made."""
        loaded = self._job.loaded.with_secrets_of_now()
        if loaded is not self._job.loaded:
            logger.info("%s: a secret in a file has changed", self._job.task)
            self._around.keep_unsaid(loaded)
            self._job = replace(self._job, loaded=loaded)
        return self._job

    async def _supervise(
        self,
        live: Callable[[Reporter], Awaitable[None]],
        desired: DesiredState,
        tasks: asyncio.TaskGroup,
        log: Log,
    ) -> bool:
        """Whether the task shall begin afresh: somebody restarted it, or it was given up and then
        resumed, or is tried again as its cause may be cured outside."""
        retry = self._job.loaded.spec.errors.retry
        patience = RetryPolicy(retry.for_ms, retry.backoff.first_ms, retry.backoff.longest_ms)
        wanted = desired.now

        def report(each: Report) -> None:
            nonlocal wanted
            wanted = desired.now
            self._listeners.report(each)

        supervised = tasks.create_task(
            supervise(
                self._job.task,
                live,
                patience,
                report,
                self._around,
                tries=None if self._job.until_end else self._tries,
            )
        )
        restarted = tasks.create_task(self._until_other(desired, _newest_restart))
        try:
            await asyncio.wait({supervised, restarted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            restarted.cancel()
            supervised.cancel()
            await wait_for_end(supervised, restarted)
        if supervised.cancelled():
            return True
        ended = supervised.result()
        if ended.retry_ms is None:  # else it only rests
            self._listeners.ended(ended)
        if ended.state is not TaskState.QUARANTINED or self._job.until_end:
            return False
        at_rest = asyncio.ensure_future(self._watch_at_rest(log, desired))
        try:
            await self._until_retried(desired, ended, wanted)
        finally:
            await let_go(at_rest)
        return True

    async def _watch_at_rest(self, log: Log, desired: DesiredState) -> None:
        """Watches what a server retains for a source, which grows also while the source is
        quarantined."""
        if self._watch is None or not self._job.is_source:
            return
        try:
            await self._watch(self._task_run(log, desired, self._listeners.report))
        except HeadwaterError as error:
            logger.warning("%s: its source is no longer watched: %s", self._job.task, error)
        except Exception:  # a figure is no reason to end what may be resumed
            logger.exception("%s: its source is no longer watched", self._job.task)

    async def _until_retried(
        self, desired: DesiredState, ended: TaskEnded, wanted: DesiredTaskState
    ) -> None:
        """A person resumes it, or its time comes. `wanted`: when the quarantine was reported, since
        the answer may come at once."""
        self._tries = 1 if ended.has_moved else self._tries + 1
        resumed = self._until_other(desired, DesiredTaskState.fresh_start, wanted)
        waits = [asyncio.ensure_future(resumed)]
        if ended.retry_ms is not None:
            waits.append(asyncio.ensure_future(self._around.sleep(ended.retry_ms / 1_000)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await let_go(*waits)

    async def _follow(self, desired: DesiredState) -> None:
        await self._is_informed.wait()
        try:
            await desired.follow()
        except Exception:  # the rows go on; whoever wants a pause sees nothing come of it
            logger.exception("%s no longer receives pauses and restarts", self._job.task)

    async def _report_verified(self, desired: DesiredState) -> None:
        """Reports the last comparison of each table, by whomever, and before whichever restart.
        Every task tells it, since a source may be done long before its sinks."""
        await self._is_informed.wait()
        seen, reported = desired.now, dict[str, str]()
        while True:
            for signal in seen.signals:
                if signal.kind == VERIFIED and reported.get(signal.table) != signal.id:
                    reported[signal.table] = signal.id
                    self._listeners.report(_to_verified(self._job.loaded.name, signal))
            seen = await desired.wait_for_change(seen)

    async def _until_other(
        self,
        desired: DesiredState,
        name_of: Callable[[DesiredTaskState], str],
        since: DesiredTaskState | None = None,
    ) -> None:
        """Waits until `name_of` what is wanted is another than it is now, or was."""
        await self._is_informed.wait()
        seen = since or desired.now
        first = name_of(seen)
        while name_of(seen) == first:
            seen = await desired.wait_for_change(seen)


def _to_verified(pipeline: str, signal: Signal) -> TableVerified:
    options = signal.options
    return TableVerified(
        pipeline,
        VERIFY,
        signal.table,
        signal.at_ms,
        int(options["differing"]),
        int(options["rows"]),
        options["sides"],
        options["problem"],
    )


def _newest_restart(desired: DesiredTaskState) -> str:
    restarts = [
        signal.id for signal in desired.signals if signal.kind == RESTART and not signal.table
    ]
    return restarts[-1] if restarts else ""
