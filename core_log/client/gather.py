"""Waits for several answers at once, and for none of them any more."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results in order. The first failure ends the others and is raised as it is."""
    calls = list(calls)
    if len(calls) == 1:
        return [await calls[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def first(calls: Iterable[Coroutine[Any, Any, T]]) -> T:
    """The result of whichever ends first, well or badly; the others are cancelled."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return done.pop().result()


async def let_go(task: "asyncio.Future[Any]") -> None:
    """Ends it and waits until it has ended. What it failed with is nobody's concern any more, and
    the loop is not left to complain of it when the garbage is collected."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
