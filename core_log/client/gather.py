"""Waits for several coroutines at once and leaves none of them running."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns the results in order. The first failure cancels the others and is raised
    unchanged. Tasks are cancelled in their order, so that a simulation can be played again."""
    calls = list(calls)
    if len(calls) <= 1:
        return [await call for call in calls]
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await let_go(*tasks)
    return [task.result() for task in tasks if task in done]


async def first(calls: Iterable[Coroutine[Any, Any, T]]) -> T:
    """Returns the result or raises the error of the first one that ends, or of the first in order
    where several do; the others are cancelled."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await let_go(*tasks)
    return next(task for task in tasks if task in done).result()


async def in_thread(work: Callable[[], T], threads: Executor | None = None) -> T:
    """Waits for the thread even when cancelled, so that nothing it does goes on behind our back."""
    running = asyncio.get_running_loop().run_in_executor(threads, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        try:
            await wait_for_end(running)
        finally:
            running.exception()  # nobody is left to be told of it
        raise


async def wait_for_end(*futures: "asyncio.Future[Any]", for_s_max: float | None = None) -> None:
    """Waits until the futures are done, or for so long. A cancellation meanwhile is raised at the
    end: a caller that is cancelled twice still waits for the work that it ends."""
    loop, cancelled = asyncio.get_running_loop(), None
    until = None if for_s_max is None else loop.time() + for_s_max
    while left := {each for each in futures if not each.done()}:
        seconds = None if until is None else until - loop.time()
        if seconds is not None and seconds <= 0:
            break
        try:
            await asyncio.wait(left, timeout=seconds)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def let_go(*tasks: "asyncio.Future[Any]") -> None:
    """Cancels tasks in their order and waits for their end. Their errors are ignored, and the loop
    does not log them at garbage collection."""
    for task in tasks:
        task.cancel()
    try:
        await wait_for_end(*tasks)
    finally:
        for task in tasks:
            if not task.cancelled():
                task.exception()
