"""An event loop whose time passes only where everybody waits, and processes that end or stand still
anywhere."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from random import Random
from typing import Any, TypeVar

from tests.simulation.trace import Trace

T = TypeVar("T")
START_S = 1_000.0
EPOCH_MS = 1_700_000_000_000
BURIED_S = 60.0
THREAD_S = (0.0001, 0.003)
"""Time of work in a thread, such as a sync: least and most."""

_process: ContextVar["Process | None"] = ContextVar("process", default=None)


class NothingLeft(Exception):
    """Everybody waits for something that nobody will do."""


class _Call:
    """A callback of a process, which may be cancelled while the process stands still."""

    __slots__ = ("args", "callback", "context", "handle")

    def __init__(
        self, context: Context, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self.context, self.callback, self.args = context, callback, args
        self.handle: asyncio.Handle | None = None

    def run(self) -> None:
        if self.handle is None or not self.handle.cancelled():
            self.callback(*self.args)


class Process:
    """All that one simulated process has started: it can be killed, or paused, between any two
    steps."""

    def __init__(self, name: str) -> None:
        self.name, self.is_over, self.is_paused = name, False, False
        self._held: list[_Call] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._hung: list[Callable[[], None]] | None = None

    def hang_threads(self) -> None:
        """No work in a thread, such as a sync, comes to its end."""
        if self._hung is None:
            self._hung = []

    def let_threads_go_on(self) -> None:
        hung, self._hung = self._hung or [], None
        loop = asyncio.get_event_loop()
        for work in hung:
            loop.call_soon(work, context=self.context())

    def in_thread(self, work: Callable[[], None]) -> None:
        if self._hung is None:
            work()
        else:
            self._hung.append(work)

    def context(self) -> Context:
        context = copy_context()
        context.run(_process.set, self)
        return context

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts a task of this process on the running loop."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "processes are simulated on virtual time"
        loop.processes[self] = None
        return loop.create_task(work, context=self.context())

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Keeps a task alive: garbage would run what it left to do at its end."""
        if len(self._tasks) > 1_000:
            self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)

    def run(self, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "processes are simulated on virtual time"
        loop.trace.note(loop.time(), f"{self.name} {_name_of(call.callback)}")
        if self.is_over or self.is_paused:
            self._held.append(call)
        else:
            call.callback(*call.args)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Does everything that has come meanwhile, in its order."""
        self.is_paused = False
        held, self._held = self._held, []
        loop = asyncio.get_event_loop()
        for call in held:
            loop.call_soon(call.run, context=call.context)

    def kill(self) -> None:
        """Nothing of it is done again while anybody looks, not even what it does at its end."""
        self.is_over = True

    def bury(self) -> None:
        """Lets it come to its end."""
        self.is_over = False
        self.resume()


def _name_of(callback: Callable[..., object]) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, _Call):  # which came while the process stood still
        return _name_of(owner.callback)
    work = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
    return getattr(work, "__qualname__", type(work).__name__)


class _NoSockets(selectors.SelectSelector):
    """Where nobody has anything to do, the time until the next deadline is over."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = START_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeft
        self.now_s += max(timeout, 0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks for their process, and work for threads after a random time."""

    def __init__(self, random: Random, trace: Trace) -> None:
        self._time = _NoSockets()
        self._random, self.trace = random, trace
        self.processes: dict[Process, None] = {}
        """In the order in which they were started."""
        super().__init__(self._time)
        self.set_task_factory(_new_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._time.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        process = context.get(_process)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        call = _Call(context, callback, args)
        call.handle = super().call_soon(process.run, call, context=context)
        return call.handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        process = context.get(_process)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        call = _Call(context, callback, args)
        call.handle = handle = super().call_at(when, process.run, call, context=context)
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        outcome: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if outcome.cancelled():
                return
            try:
                outcome.set_result(func(*args))
            except Exception as error:
                outcome.set_exception(error)

        process = _process.get()
        done = work if process is None else partial(process.in_thread, work)
        self.call_later(self._random.uniform(*THREAD_S), done)
        return outcome


def _new_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    context: Context | None = None,
) -> asyncio.Task[T]:
    context = copy_context() if context is None else context
    task = asyncio.Task(work, loop=loop, context=context)
    process = context.get(_process)
    if process is not None:
        process.adopt(task)
    return task


class LoopClock:
    """A machine's clock: the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)


def simulate(
    random: Random, work: Callable[[], Coroutine[Any, Any, T]], trace: Trace | None = None
) -> T:
    """Runs to the end whatever it simulates, on a loop of its own."""
    loop = VirtualLoop(random, trace or Trace())
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work())
    finally:
        bury(loop)
        asyncio.set_event_loop(None)
        loop.close()


def bury(loop: VirtualLoop) -> None:
    """Lets killed processes come to their ends once nobody looks any more: as garbage they would
    complain."""
    loop.trace.end()
    loop.set_exception_handler(lambda loop, context: None)
    for process in loop.processes:
        process.bury()
    buried = set[asyncio.Task[Any]]()
    while pending := asyncio.all_tasks(loop) - buried:  # who ends may begin something
        for task in pending:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            task.cancel()
        loop.run_until_complete(asyncio.wait(pending, timeout=BURIED_S))
        buried |= pending
