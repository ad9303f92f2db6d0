"""Work in columns beside the event loop: Arrow and zstd let go of the interpreter meanwhile."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

T = TypeVar("T")

PIECE_ROWS_MIN = 4_000
THREAD_BYTES_MIN = 64 << 10
"""Less than this is done sooner than a thread is woken."""


def pieces_of(rows: int) -> int:
    """Into how many pieces a batch is divided, to be worked on side by side."""
    wanted = rows // PIECE_ROWS_MIN
    return min(os.cpu_count() or 1, wanted) if wanted > 1 else 1  # the system is slow to count


def start_work(work: Callable[[], T], size: int) -> "asyncio.Future[T]":
    """The same as a future: of what needs no thread it has come when this returns, so that nobody
    waits for the loop's next turn."""
    if size >= THREAD_BYTES_MIN:
        return asyncio.ensure_future(beside(work, size))
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    return done


async def beside(work: Callable[[], T], size: int) -> T:
    """Done in a thread when `size`, in bytes, makes that worth it. Whoever is cancelled waits for
    the thread, so that nobody begins again with what it still works on."""
    if size < THREAD_BYTES_MIN:
        return work()
    working = asyncio.get_running_loop().run_in_executor(_threads(), work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        working.exception()
        raise


@cache
def _threads() -> ThreadPoolExecutor:
    """No more than there are cores: each thread keeps memory that it has once used."""
    return ThreadPoolExecutor(
        os.cpu_count() or 1, thread_name_prefix="columns", initializer=_step_back
    )


def _step_back() -> None:
    """Has the system know that this thread only computes: when it wakes, it pushes nobody aside.

    Else it does so to the event loop, which then waits for a processor with the interpreter in its
    hands, and everybody for both.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


async def one_ahead(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same items; the next one is made while this one is used."""
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
        coming.cancel()
        await asyncio.wait([coming])  # and not `await coming`: that would swallow our own end
        if not coming.cancelled():
            coming.exception()
        await items.aclose()
