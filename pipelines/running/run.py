"""`headwater run`: owns the log and runs pipelines over it, or joins the process that does."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from subprocess import Popen
from typing import TYPE_CHECKING, Any

from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation import errors
from headwater.core_log.foundation.clock import SystemClock, unix_ms
from headwater.core_log.foundation.endpoint import Endpoint
from headwater.core_log.foundation.errors import (
    ConfigError,
    DirectoryInUse,
    HeadwaterError,
    LogUnavailable,
)
from headwater.core_log.model.log import Log
from headwater.pipelines.file.http_settings import HttpSettings
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.control import read_desired
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.reports import Report, RowsMoved, TaskRun, TaskState
from headwater.pipelines.running.data_directory_lock import (
    COMING,
    DirectoryLock,
    body_of,
    claim,
    handed_over,
    join_broker,
    kafka_settings,
    log_opener,
)
from headwater.pipelines.running.migration_approval import approve
from headwater.pipelines.running.processes import WorkerProcesses
from headwater.pipelines.running.running_pipelines import RunningPipelines
from headwater.pipelines.running.supervisor import TaskEnded, TaskEnvironment, expected_error
from headwater.pipelines.running.tasks import SOURCE, RunTask, TaskRunner
from headwater.pipelines.terminal.log_place import (
    LOOK_AGAIN_S,
    SILENT_S_MAX,
    LogLender,
    find_owner,
    is_running,
)
from headwater.pipelines.watching.http_api import HttpListener, ReportStream
from headwater.pipelines.watching.notifier import Notifier
from headwater.pipelines.watching.otlp_export import OtlpExports
from headwater.pipelines.watching.status import StatusBoard

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.pipelines.running.worker_group import WorkerGroup

logger = logging.getLogger(__name__)

ATTACHED_LOOK_S = 0.5
JOIN_RETRY_MS = 3_000
"""How long the log of a process that runs pipelines may be silent until that one is gone."""
LOOK_S_MAX = 1.0
"""How long a picture waits for a log that does not answer."""
FIRST_ROWS_S = 2.0
"""How long everything that only watches leaves the machine to the first rows."""

Snapshot = Mapping[str, Any]
Look = Callable[[], Awaitable[Snapshot]]
Show = Callable[[Look], Coroutine[Any, Any, None]]
"""Shows how far everything is until it is cancelled."""

OVER = {state.value for state in (TaskState.DONE, TaskState.STOPPED, TaskState.QUARANTINED)}


@dataclass(frozen=True, slots=True)
class RunOptions:
    load: Callable[[], Sequence[LoadedPipeline]]
    show: Show
    keep_unsaid: Callable[[Sequence[LoadedPipeline]], None] = lambda _: None
    """Told of every pipeline, so that its secrets stay out of what is said."""
    first_worker: Popen[bytes] | None = None
    """A worker process that imports what it needs while this one does."""
    once: bool = False
    begins: bool = False
    """Whether an empty directory begins a cluster beyond loopback."""
    migrates: bool = False
    """Whether topics may get new generations where the files ask for that."""
    http: HttpSettings | None = None
    """A fixed address, in place of the files'."""


async def run(wanted: RunOptions) -> Snapshot:
    """Returns the last snapshot when nothing is left to do; raises when something failed."""
    try:
        async with asyncio.TaskGroup() as tasks:
            return await _Run(wanted, tasks).run()
    except ExceptionGroup as group:
        error = expected_error(group)
        if error is not None:
            raise error from None
        if len(group.exceptions) == 1 and isinstance(group.exceptions[0], OSError):
            raise group.exceptions[0] from None  # such as a directory that cannot be made
        raise


class _Run:
    def __init__(self, wanted: RunOptions, tasks: asyncio.TaskGroup) -> None:
        self._wanted, self._tasks = wanted, tasks
        self._clock = SystemClock()
        self._board, self._stream = StatusBoard(self._clock), ReportStream()
        self._has_moved, self._notifier = asyncio.Event(), Notifier(self._clock)
        self._otlp = OtlpExports(self._board.own_snapshot)
        self._pipelines = RunningPipelines(
            tasks, self._hear, on_left=lambda task: self._board.forget_task(*task)
        )
        self._group: WorkerGroup | None = None
        self._around = TaskEnvironment(
            self._clock,
            SystemRandom(),
            keep_unsaid=lambda loaded: wanted.keep_unsaid([loaded]),
        )
        self._processes = WorkerProcesses(tasks, self._pipelines.listeners(), self._around)

    async def run(self) -> Snapshot:
        try:
            if self._wanted.first_worker is not None:
                self._processes.prepare(self._wanted.first_worker)
            loaded = self._wanted.load()
            self._wanted.keep_unsaid(loaded)
            if self._wanted.once and loaded[0].spec.log.cluster is not None:
                raise ConfigError(
                    "a run with --once would take a broker from its cluster when it ends",
                    hint="reach the cluster as a client: log: {type: kafka, bootstrap: HOST:PORT}",
                )
            if self._wanted.begins and loaded[0].spec.log.cluster is None:
                raise ConfigError(
                    "a log that is alone begins no cluster",
                    hint="leave out --begin, or make it part of one: log: {cluster: ...}",
                )
            data = loaded[0].log_path
            found = await self._claim_or_attend(loaded, data)
            if not isinstance(found, DirectoryLock):
                return found
            try:
                return await self._own(found, loaded)
            finally:
                await found.close()
        finally:
            await self._processes.close()

    def _hear(self, report: Report) -> None:
        self._board(report)
        self._stream(report)
        self._notifier(report)
        self._otlp(report)
        if isinstance(report, RowsMoved) and report.task != SOURCE:
            self._has_moved.set()

    async def _claim_or_attend(
        self, loaded: Sequence[LoadedPipeline], data: Path
    ) -> DirectoryLock | Snapshot:
        """As long as somebody else owns the directory, we look on; when nobody does, we do."""
        silent_s, shown_pid, lender = 0.0, 0, LogLender(data)
        while True:
            try:
                return await claim(loaded[0], data, begins=self._wanted.begins)
            except DirectoryInUse:
                if lender.has_it():
                    silent_s = 0.0
                    await asyncio.sleep(LOOK_AGAIN_S)
                    continue
                endpoint = find_owner(data)
                if endpoint is None or endpoint.http == COMING:
                    if silent_s >= SILENT_S_MAX:
                        raise
                    silent_s += LOOK_AGAIN_S
                    await asyncio.sleep(LOOK_AGAIN_S)
                    continue
            if endpoint.http is None:
                logger.info("a broker runs on %s, and this run uses its log", data)
                return join_broker(loaded[0], endpoint)
            silent_s = 0.0
            await self._processes.let_idle_go()
            attended = await attend(endpoint, loaded, self._wanted)
            if attended is not None:
                return attended
            if shown_pid != endpoint.pid:
                shown_pid = endpoint.pid
                state = "is stopping" if is_running(endpoint.pid) else "is gone"
                logger.info("process %d %s: this one takes over", endpoint.pid, state)
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _own(self, claimed: DirectoryLock, loaded: Sequence[LoadedPipeline]) -> Snapshot:
        listener = find_listener(self._wanted.http, loaded)
        runner = TaskRunner(
            self._tasks,
            _tasks_here(),
            log_opener(claimed.client_for),
            self._pipelines.listeners(),
            self._around,
            prepare=_prepare_here,
            watch=_watch_here,
        )
        self._board.log_problem, self._board.offline = claimed.problem, claimed.offline
        self._board.disk = claimed.disk
        self._pipelines.run_in(
            processes=self._processes, runner=runner, bootstrap=claimed.bootstrap
        )
        self._know(loaded)
        sharing = await self._share(claimed, loaded)
        notifying = self._tasks.create_task(self._notifier.run())
        watching = self._tasks.create_task(self._watch(claimed, listener))
        try:
            logger.info("the log is at %s", ",".join(claimed.bootstrap))
            if self._wanted.migrates:
                for each in loaded:
                    await approve(each, claimed.log, now_ms=self._clock.now_ms())
            if self._wanted.once:
                for each in loaded:
                    await _refuse_paused(each, claimed.log)
            await self._pipelines.apply(loaded, until_end=self._wanted.once)
            if self._group is not None:
                sharing += [self._tasks.create_task(self._group.run())]
            await _prepare_log(claimed, loaded)
            ended = await self._pipelines.until_over()
            if not self._wanted.once:
                raise_failure(ended)
            return await self._look(claimed)
        except asyncio.CancelledError:
            self._board.is_stopping = True
            logger.info("stopping: work in flight is finished")
            raise
        finally:
            if self._group is not None:
                self._group.end_offers()
            await self._pipelines.close()
            await asyncio.gather(self._notifier.finish(), self._otlp.finish())
            for each_task in (watching, notifying, *sharing):
                each_task.cancel()
            await wait_for_end(watching, notifying, *sharing)

    async def _share(
        self, claimed: DirectoryLock, loaded: Sequence[LoadedPipeline]
    ) -> "list[asyncio.Task[None]]":
        """On a log that other machines reach, too, runs share their tasks. A run to an end does
        all by itself."""
        member = claimed.member
        if member is None:
            return []
        if self._wanted.once:
            try:
                # a run of this directory that was killed is a member until its session ends
                await refuse_running_elsewhere(member.log, loaded, besides=member.instance)
            finally:
                await member.log.close()
            return []
        from headwater.pipelines.running.worker_group import WorkerGroup
        from headwater.pipelines.watching.member_status import MemberStatus, RunsNow

        self._pipelines.share()
        group = self._group = WorkerGroup(
            member.log,
            self._pipelines,
            instance=member.instance,
            name=socket.gethostname(),
            clock=self._clock,
            report=self._hear,
            renew=self._processes.renew,
        )

        def look() -> RunsNow:
            tasks = (task for _, tasks in self._pipelines.list_shared() for task in tasks)
            return RunsNow(
                group.instance,
                group.share.members,
                group.generation,
                self._pipelines.here,
                frozenset(tasks),
            )

        status = MemberStatus(group.topic, self._board, look, self._clock)
        self._board.shared = status.merge
        return [self._tasks.create_task(status.run())]

    def _know(self, loaded: Sequence[LoadedPipeline]) -> None:
        for each in loaded:
            self._notifier.know(each)
            self._otlp.know(each)

    async def _watch(self, claimed: DirectoryLock, listener: HttpListener | None) -> None:
        """Status, metrics and the picture come after the first rows."""
        from headwater.pipelines.watching.http_api import HttpApi, RequestAnswer

        answering = RequestAnswer(
            self._board,
            self._stream,
            claimed.log,
            self._clock,
            self._take_over_file,
            claimed.broker,
        )
        api = HttpApi(answering, token=claimed.token, listener=listener)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_ROWS_S):
                    await self._has_moved.wait()
            if address := await api.start():
                assert claimed.publish_http is not None, "a token is for endpoint.json"
                claimed.publish_http(address)
            if listener is not None:
                logger.info("status and metrics are at %s", listener.address)
            await self._wanted.show(lambda: self._look(claimed))
        except Exception:  # rows matter more than looking at them
            logger.exception("status and progress are no longer available")
        finally:
            await api.stop()

    async def _look(self, claimed: DirectoryLock) -> Snapshot:
        from headwater.pipelines.watching.http_routes import read_ends

        with suppress(HeadwaterError, TimeoutError):  # a picture with a hole is better than none
            async with asyncio.timeout(LOOK_S_MAX):
                if claimed.problem():
                    await claimed.log.is_exactly_once()  # any question shows whether it is over
                self._board.know_ends(await read_ends(claimed.log, self._board.partitions()))
        return self._board.snapshot()

    async def _take_over_file(self, body: bytes) -> Mapping[str, object]:
        """Takes over a file that another `headwater run` was given to run."""
        loaded, until_end = handed_over(body)
        if self._board.is_stopping:
            raise LogUnavailable("the process that runs the pipelines is stopping")
        self._wanted.keep_unsaid(loaded)
        self._know(loaded)
        if until_end and self._group is not None:
            await refuse_running_elsewhere(self._group.log, loaded)
        applied = await self._pipelines.apply(loaded, until_end=until_end)
        if self._group is not None:
            self._group.offer(loaded, is_newest=True)
        for word, tasks in applied.as_json().items():
            if tasks and word != "unchanged":
                logger.info("another run has %s %s", word, ", ".join(tasks))
        return applied.as_json()


def find_listener(
    given: HttpSettings | None, loaded: Sequence[LoadedPipeline]
) -> HttpListener | None:
    """Listens at the address of the command, or else at that of the files."""
    if given is not None and given.listen:
        return HttpListener(given)
    found = [each.spec.http.beside(each.directory) for each in loaded if each.spec.http.listen]
    if any(each != found[0] for each in found):
        raise ConfigError(
            "the files have several addresses in http:",
            hint="use one, or run --http HOST:PORT",
            addresses=", ".join(sorted({each.listen for each in found})),
        )
    return HttpListener(found[0]) if found else None


async def _refuse_paused(loaded: LoadedPipeline, log: Log) -> None:
    """It would never come to its end."""
    if (await read_desired(log, loaded.name)).is_paused:
        raise ConfigError(
            "the pipeline is paused, so a run with --once would not end",
            hint=f"headwater resume {loaded.name}",
            pipeline=loaded.name,
        )


async def refuse_running_elsewhere(
    log: "KafkaLog", loaded: Sequence[LoadedPipeline], *, besides: str = ""
) -> None:
    """A run to an end would fence the runs that share the pipeline, and they would fence it."""
    from headwater.pipelines.running.assignor import pipelines_of_members

    running = await pipelines_of_members(log, besides=besides)
    for each in loaded:
        if each.name in running:
            raise DirectoryInUse(
                "the pipeline is already running without --once",
                pipeline=each.name,
                member=running[each.name],
                hint=f"headwater status shows the progress of {each.name}",
            )


async def _prepare_log(claimed: DirectoryLock, loaded: Sequence[LoadedPipeline]) -> None:
    """Makes what tasks will ask for while their processes are still starting. A failure here
    happens there, too, where it is tried again and told."""
    with suppress(HeadwaterError):
        await claimed.log.ensure_topic(*internal_topics(history_ms=loaded[0].spec.log.history_ms))
        await claimed.log.committed_offsets(f"headwater.{loaded[0].name}")


def _tasks_here() -> RunTask:
    """Imported only where a file says `workers: 0`: the broker's process is to stay small."""
    run_task: RunTask | None = None

    async def run(task: TaskRun) -> None:
        nonlocal run_task
        if run_task is None:
            from headwater.pipelines.running.first_checks import checked_first

            run_task = checked_first()
        await run_task(task)

    return run


def _prepare_here(loaded: LoadedPipeline, task: str) -> None:
    from headwater.pipelines.running.first_checks import prepare_source

    prepare_source(loaded, task)


async def _watch_here(task: TaskRun) -> None:
    from headwater.pipelines.loops.assembly import watch_source

    await watch_source(task)


async def attend(
    endpoint: Endpoint, loaded: Sequence[LoadedPipeline], wanted: RunOptions
) -> Snapshot | None:
    """Hands the files to the process that runs pipelines, and shows what it does. None when it is
    gone, or about to go; being cancelled leaves it alone."""
    from headwater.pipelines.running.owner_client import LockHolder

    assert endpoint.http and endpoint.token, "an owner with a console has both"
    owner = LockHolder(endpoint.http, endpoint.token)
    body = body_of(loaded, until_end=wanted.once)

    async def look() -> Snapshot:
        return await asyncio.to_thread(owner.status)

    showing: asyncio.Future[None] | None = None
    try:
        await _check_topics(endpoint, loaded, wanted)
        applied = await asyncio.to_thread(owner.ask, "POST", "/run", body)
        logger.info("process %d runs the pipelines of this log", endpoint.pid)
        for word in ("started", "stopped"):
            if applied[word]:
                logger.info("process %d has %s %s", endpoint.pid, word, ", ".join(applied[word]))
        showing = asyncio.ensure_future(wanted.show(look))
        return await _until_over(look, {each.name for each in loaded}, once=wanted.once)
    except LogUnavailable:
        return None
    except asyncio.CancelledError:
        logger.info("process %d continues", endpoint.pid)
        raise
    finally:
        if showing is not None:
            showing.cancel()
            await wait_for_end(showing)
            if not showing.cancelled() and (failure := showing.exception()):
                logger.debug("progress is no longer shown: %s", failure)


async def _check_topics(
    endpoint: Endpoint, loaded: Sequence[LoadedPipeline], wanted: RunOptions
) -> None:
    """Before a running pipeline is stopped for the sake of an edit that cannot be obeyed."""
    from headwater.core_log.client import KafkaLog
    from headwater.pipelines.running.first_checks import refuse_impossible, refuse_migration

    for each in loaded:
        settings = kafka_settings(each, [endpoint.kafka])
        log = KafkaLog(settings.model_copy(update={"retry_for_ms": JOIN_RETRY_MS}))
        try:
            if wanted.once:
                await _refuse_paused(each, log)
            if wanted.migrates:
                await refuse_impossible(each, log, clock=SystemClock())
                await approve(each, log, now_ms=unix_ms())
            else:
                await refuse_migration(each, log, clock=SystemClock())
        except ConfigError:
            raise
        except HeadwaterError as error:  # of which the running pipeline will speak itself
            logger.debug("the result of %s is unknown: %s", each.path, error)
        finally:
            await log.close()


async def _until_over(look: Look, names: set[str], *, once: bool) -> Snapshot | None:
    """None when the pipelines stop because the process that runs them does."""
    while True:
        snapshot = await look()
        if snapshot["is_stopping"]:
            return None
        found = {name: snapshot["pipelines"].get(name) for name in names}
        tasks = [
            (name, task, facts)
            for name, pipeline in found.items()
            if pipeline is not None
            for task, facts in pipeline["tasks"].items()
        ]
        if tasks and all(found.values()) and all(f["state"] in OVER for _, _, f in tasks):
            for name, task, facts in tasks:
                if facts["state"] == TaskState.QUARANTINED.value and not once:
                    raise errors.SinkRejected(f"{name}/{task} is quarantined: {facts['reason']}")
            return snapshot
        await asyncio.sleep(ATTACHED_LOOK_S)


def raise_failure(ended: Sequence[TaskEnded]) -> None:
    """The first task that was given up says how the run has failed, in its own error's kind."""
    for each in ended:
        if each.state is TaskState.QUARANTINED:
            kind = getattr(errors, each.kind, HeadwaterError)
            raise _again(kind, f"{each.task} is quarantined: {each.reason}")


def _again(kind: type[HeadwaterError], problem: str) -> HeadwaterError:
    """An error of the same class, whatever arguments its class takes."""
    error = kind.__new__(kind)
    HeadwaterError.__init__(error, problem)
    return error
