"""Work in columns beside the event loop: Arrow and zstd let go of the interpreter meanwhile."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

THREAD_BYTES_MIN = 64 << 10
"""Less than this is done sooner than a thread is woken."""


async def beside(work: Callable[[], T], size: int) -> T:
    """Done in a thread when `size`, in bytes, makes that worth it. One such work at a time: the
    caller waits, and may share with it what nobody else changes."""
    if size < THREAD_BYTES_MIN:
        return work()
    return await asyncio.to_thread(work)


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
        with suppress(BaseException):
            await coming
        await items.aclose()
