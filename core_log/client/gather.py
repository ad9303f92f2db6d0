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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks if task in done]


async def first(calls: Iterable[Coroutine[Any, Any, T]]) -> T:
    """Returns the result or raises the error of the first one that ends, or of the first in order
    where several do; the others are cancelled."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return next(task for task in tasks if task in done).result()


async def in_thread(work: Callable[[], T], threads: Executor | None = None) -> T:
    """Waits for the thread even when cancelled, so that nothing it does goes on behind our back."""
    running = asyncio.get_running_loop().run_in_executor(threads, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.exception()  # nobody is left to be told of it
        raise


async def let_go(task: "asyncio.Future[Any]") -> None:
    """Cancels a task and waits for its end. Its error is ignored, and the loop does not log it at
    garbage collection."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
