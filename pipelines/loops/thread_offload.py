"""Column work in threads beside the event loop: Arrow and zstd release the interpreter lock."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

from headwater.core_log.client.gather import in_thread, let_go

T = TypeVar("T")

PART_ROWS_MIN = 4_000
THREAD_BYTES_MIN = 64 << 10
"""Less work is done faster than a thread is woken."""


def slices_of(rows: int) -> int:
    """Returns the number of parts of a batch for parallel work."""
    wanted = rows // PART_ROWS_MIN
    return min(os.cpu_count() or 1, wanted) if wanted > 1 else 1  # the system call is slow


def start_work(work: Callable[[], T], size: int) -> "asyncio.Future[T]":
    """Works as a future. Small work is done when this returns, without another turn of the loop."""
    if size >= THREAD_BYTES_MIN:
        return asyncio.ensure_future(run_in_thread(work, size))
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    return done


async def run_in_thread(work: Callable[[], T], size: int) -> T:
    """Runs work in a thread if its `size` in bytes is worth it.

    A cancelled caller waits for the thread, so that its input is not used twice at the same time.
    """
    if size < THREAD_BYTES_MIN:
        return work()
    return await in_thread(work, _threads())


@cache
def _threads() -> ThreadPoolExecutor:
    """At most one per core: each thread keeps memory that it has once used."""
    return ThreadPoolExecutor(
        os.cpu_count() or 1, thread_name_prefix="columns", initializer=_step_back
    )


def _step_back() -> None:
    """Marks this thread as batch work, so that it does not preempt others when it wakes.

    Otherwise it preempts the event loop, which then waits for a processor while it has the
    interpreter lock, and so blocks both.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


async def one_ahead(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yields the same items; the next one is made while this one is used."""
    coming = asyncio.ensure_future(anext(items))
    try:
        while True:
            try:
                item = await coming
            except StopAsyncIteration:
                return
            coming = asyncio.ensure_future(anext(items))
            yield item
    finally:
        try:
            await let_go(coming)
        finally:
            await items.aclose()
