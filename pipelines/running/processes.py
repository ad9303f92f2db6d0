"""The worker processes of an owner: tasks spread over them, and those that die started again."""

import asyncio
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from subprocess import Popen
from typing import IO, Self

from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation.errors import DecodeError
from headwater.pipelines.reports import StateChanged, TaskState
from headwater.pipelines.running.supervisor import (
    CRASHES_MAX,
    Backoff,
    Crashes,
    RetryPolicy,
    TaskEnded,
    TaskEnvironment,
    TaskId,
)
from headwater.pipelines.running.tasks import SOURCE, Listeners, TaskAssignment
from headwater.pipelines.running.worker_protocol import (
    LeaveTask,
    Order,
    RenewLease,
    StartTask,
    StopTask,
    TaskGone,
    Word,
    decode_word,
    encode_order,
)
from headwater.pipelines.running.worker_start import COMMAND, spawn

logger = logging.getLogger(__name__)

LEAVE_S_MAX, SOURCES_S_MAX = 30.0, 15.0
"""How long all worker processes may take to finish what they have begun, and sources of it."""
LINE_BYTES_MAX = 64 << 20
"""A report names every file or partition at which a task stands."""


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """A task, and where the log is that it works on."""

    job: TaskAssignment
    bootstrap: tuple[str, ...]

    def order(self) -> StartTask:
        return StartTask(
            self.job.task, self.job.loaded.to_wire(), self.bootstrap, self.job.until_end
        )


class WorkerProcesses:
    """A task that takes its process down takes its neighbours with it once or twice; then each of
    them gets a process of its own, which shows who it was."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        listeners: Listeners,
        around: TaskEnvironment,
        *,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._tasks, self._listeners, self._around = tasks, listeners, around
        self._command = command
        self._shared: list[_Place] = []
        self._own: list[_Place] = []
        self._waiting: dict[TaskId, asyncio.Event] = {}
        self._lease_ends_ms: int | None = None
        """Until when tasks may run without a word from here; None for ever."""

    def prepare(self, first: Popen[bytes]) -> None:
        """Takes over a process that was spawned before it was known what it will do."""
        self._shared.append(self._new_place(spawned=first))

    async def let_idle_go(self) -> None:
        """Somebody else does the work."""
        idle = [place for place in self._shared if not place.postings]
        self._shared = [place for place in self._shared if place.postings]
        for place in idle:
            await place.close(wait_s=LEAVE_S_MAX)

    def start(self, posting: TaskPlacement, *, process_count: int) -> None:
        """Puts a task where the fewest are, among that many processes."""
        chosen = self._shared[:process_count]
        place = min(chosen, key=lambda each: len(each.postings), default=None)
        if place is None or (place.postings and len(self._shared) < process_count):
            place = self._new_place()
            self._shared.append(place)
        place.post(posting)

    def renew(self, lease_s: float) -> None:
        """Lets tasks run for so long from now on, also if this process stands still."""
        lease_ms = round(lease_s * 1_000)
        self._lease_ends_ms = self._around.clock.monotonic_ms() + lease_ms
        for place in self._places:
            if place.process is not None:
                place.process.send(RenewLease(lease_ms))

    async def stop(self, task: TaskId) -> None:
        """Returns when the task has cleaned up behind itself, or its process is gone."""
        place = next((each for each in self._places if task in each.postings), None)
        if place is None:
            return
        gone = self._waiting.setdefault(task, asyncio.Event())
        if place.dismiss(task):
            await gone.wait()
        self._waiting.pop(task, None)

    async def close(self) -> None:
        """Sources end first, everywhere, then sinks, then the processes."""
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        for are_sources, limit_s in ((True, SOURCES_S_MAX), (False, LEAVE_S_MAX)):
            chosen = [
                task
                for place in self._places
                for task in place.postings
                if (task.name == SOURCE) is are_sources
            ]
            with suppress(TimeoutError):
                stops = asyncio.gather(*(self.stop(task) for task in chosen))
                async with asyncio.timeout_at(begun_s + limit_s):
                    await stops
        left_s = max(0.0, begun_s + LEAVE_S_MAX - clock())
        await asyncio.gather(*(place.close(wait_s=left_s) for place in self._places))

    @property
    def pids(self) -> list[int]:
        return [place.process.pid for place in self._places if place.process is not None]

    @property
    def _places(self) -> "list[_Place]":
        return [*self._shared, *self._own]

    def _new_place(
        self, crashes: Crashes | None = None, *, spawned: Popen[bytes] | None = None
    ) -> "_Place":
        place = _Place(crashes or Crashes(), spawned)
        place.keeping = self._tasks.create_task(self._keep(place))
        return place

    async def _keep(self, place: "_Place") -> None:
        """Starts the process of a place again, and again, until everything is closed."""
        backoff = Backoff(RetryPolicy(), self._around.random)
        try:
            while not place.is_over:
                place.process = await self._start(place)
                if place.is_over:
                    place.process.kill()
                if self._lease_ends_ms is not None:
                    left_ms = self._lease_ends_ms - self._around.clock.monotonic_ms()
                    place.process.send(RenewLease(max(left_ms, 0)))
                for posting in place.postings.values():
                    place.process.send(posting.order())
                ending = await place.process.listen(partial(self._hear, place))
                place.process = None
                if place.is_over:
                    break
                if not await self._after_death(place, backoff, ending):
                    break
        finally:
            place.process = None
            for task in list(place.leaving):
                self._on_gone(place, task)

    async def _start(self, place: "_Place") -> "WorkerProcess":
        spawned, place.spawned = place.spawned, None
        if spawned is not None:
            return await WorkerProcess.adopt(spawned)
        return await WorkerProcess.start(self._command)

    def _hear(self, place: "_Place", word: Word) -> None:
        match word:
            case TaskEnded():
                if word.state is not TaskState.QUARANTINED or place.is_until_end(word.task):
                    place.postings.pop(word.task, None)
                self._listeners.ended(word)
            case TaskGone():
                self._on_gone(place, word.task)
            case _:
                self._listeners.report(word)

    def _on_gone(self, place: "_Place", task: TaskId) -> None:
        place.leaving.discard(task)
        if task in self._waiting:
            self._waiting[task].set()
        self._listeners.gone(task)

    async def _after_death(self, place: "_Place", backoff: Backoff, ending: str) -> bool:
        """Whether the process is to be started again."""
        for task in list(place.leaving):
            self._on_gone(place, task)
        count = place.crashes.on_crash(self._around.clock.monotonic_ms())
        reason = f"the worker process {ending}"
        logger.error("a worker process %s: %s", ending, _list(place.postings))
        if count >= CRASHES_MAX:
            self._give_up(place, f"{reason}, {count} times in ten minutes")
            return place in self._shared
        if count > 1:
            self._separate(place)
        for task in place.postings:
            self._listeners.report(StateChanged(*task, "", TaskState.RETRYING, reason))
        if count == 1:
            backoff.reset()
        place.is_pausing = True
        await self._around.sleep(backoff.next_ms() / 1_000)
        place.is_pausing = False
        return True

    def _give_up(self, place: "_Place", reason: str) -> None:
        for task in list(place.postings):
            del place.postings[task]
            logger.error("%s is quarantined: %s", task, reason)
            self._listeners.report(StateChanged(*task, "", TaskState.QUARANTINED, reason))
            self._listeners.ended(TaskEnded(task, TaskState.QUARANTINED, reason, "WorkerDied"))

    def _separate(self, place: "_Place") -> None:
        """From now on each task dies alone."""
        for task in list(place.postings)[1:]:
            own = self._new_place(place.crashes.copy())
            own.postings[task] = place.postings.pop(task)
            self._own.append(own)


@dataclass(slots=True, eq=False)
class _Place:
    """Where a process runs, or will run again in a moment."""

    crashes: Crashes
    spawned: Popen[bytes] | None = None
    """A process of which nobody has taken care yet."""
    process: "WorkerProcess | None" = None
    postings: dict[TaskId, TaskPlacement] = field(default_factory=dict)
    leaving: set[TaskId] = field(default_factory=set)
    keeping: asyncio.Task[None] | None = None
    is_pausing: bool = False
    is_over: bool = False

    def post(self, posting: TaskPlacement) -> None:
        self.postings[posting.job.task] = posting
        if self.process is not None:
            self.process.send(posting.order())

    def dismiss(self, task: TaskId) -> bool:
        """Whether there is anything to wait for."""
        del self.postings[task]
        if self.process is None:
            return False
        self.leaving.add(task)
        self.process.send(StopTask(task))
        return True

    def is_until_end(self, task: TaskId) -> bool:
        posting = self.postings.get(task)
        return posting is not None and posting.job.until_end

    async def close(self, *, wait_s: float) -> None:
        assert self.keeping is not None, "a place is kept by a task"
        self.is_over = True
        if self.spawned is not None:
            self.spawned.kill()
            self.spawned.wait()
            self.spawned = None
        if self.is_pausing:
            self.keeping.cancel()
        elif self.process is not None and (self.postings or self.leaving):
            await self.process.leave(wait_s=wait_s)
        elif self.process is not None:
            self.process.kill()  # it has nothing to finish
        await wait_for_end(self.keeping)


def _list(postings: dict[TaskId, TaskPlacement]) -> str:
    return ", ".join(map(str, postings)) or "without a task"


class WorkerProcess:
    """It ends when its standard input does: so it never outlives its owner, however that ends."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        *,
        orders: asyncio.WriteTransport,
        words: asyncio.StreamReader,
        complaints: asyncio.StreamReader,
    ) -> None:
        self._process = process
        self._orders, self._words, self._complaints = orders, words, complaints
        self._has_ended = asyncio.Event()
        waiting = (asyncio.get_running_loop(),)
        threading.Thread(target=self._wait, args=waiting, name="worker", daemon=True).start()

    @classmethod
    async def start(cls, command: Sequence[str] = COMMAND) -> Self:
        level = logging.getLogger().getEffectiveLevel()
        return await cls.adopt(spawn(command, level=level))

    @classmethod
    async def adopt(cls, process: "subprocess.Popen[bytes]") -> Self:
        """One that `spawn` has started."""
        stdin = process.stdin
        assert stdin is not None, "started with a pipe"
        orders, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, stdin)
        words, complaints = await _reader_of(process.stdout), await _reader_of(process.stderr)
        return cls(process, orders=orders, words=words, complaints=complaints)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, order: Order) -> None:
        """To one that has just died nothing can be said; `listen` then says so."""
        if not self._orders.is_closing():
            self._orders.write(encode_order(order))

    async def listen(self, hear: Callable[[Word], None]) -> str:
        """Until the process has ended; says how."""
        await asyncio.gather(self._hear_words(hear), self._pass_on_stderr())
        await self._has_ended.wait()
        self._orders.close()
        return _how_it_ended(self._process.wait())

    async def leave(self, *, wait_s: float) -> None:
        """Lets the tasks finish what they have begun. `listen` must be running."""
        self.send(LeaveTask())
        try:
            async with asyncio.timeout(wait_s):
                await self._has_ended.wait()
        except TimeoutError:
            logger.warning("worker process %d does not end; it is killed", self.pid)
            self.kill()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def _hear_words(self, hear: Callable[[Word], None]) -> None:
        while line := await self._words.readline():
            if not line.endswith(b"\n"):
                return  # what a killed process could not finish was never said
            try:
                word = decode_word(line)
            except DecodeError as error:
                logger.warning("worker process %d: %s", self.pid, error)
            else:
                hear(word)

    async def _pass_on_stderr(self) -> None:
        while line := await self._complaints.readline():
            _show_on_stderr(line.decode(errors="replace"))

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop is closed: nobody asks any more
            loop.call_soon_threadsafe(self._has_ended.set)


async def _reader_of(pipe: IO[bytes] | None) -> asyncio.StreamReader:
    assert pipe is not None, "started with a pipe"
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


def _show_on_stderr(line: str) -> None:
    """Where our own log lines go just now, which may be above a picture that is drawn there."""
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler)
    ]
    stream = handlers[0].stream if handlers else sys.stderr
    stream.write(line)
    stream.flush()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
