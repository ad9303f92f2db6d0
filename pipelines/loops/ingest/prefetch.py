"""Reads a few batches of a source while the log is busy with earlier ones."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from headwater.core_log.model.changes import ChangeBatch

BATCHES_MAX = 2
"""The only queue in the data path; short, since each batch may be large."""


class Prefetch:
    """Hands batches out in order; what ended the source comes after the last of them."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ChangeBatch | Exception | None] = asyncio.Queue(BATCHES_MAX)

    async def next(self) -> ChangeBatch | None:
        """None when the source has ended and there will never be more."""
        found = await self._queue.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def next_within(self, wait_ms: int) -> ChangeBatch | None:
        """None as well when nothing came in time, and when the source failed: what came before
        can then still be committed, and `next` will tell."""
        try:
            if self._queue.empty() and wait_ms > 0:
                async with asyncio.timeout(
                    wait_ms / 1_000
                ):  # wait_for of 3.11 swallows our own end
                    found = await self._queue.get()
            else:
                found = self._queue.get_nowait()
        except (TimeoutError, asyncio.QueueEmpty):
            return None
        return None if isinstance(found, Exception) else found

    async def fill(self, batches: AsyncGenerator[ChangeBatch, None]) -> None:
        end: Exception | None = None
        try:
            async for batch in batches:
                await self._queue.put(batch)
        except Exception as error:
            end = error
        while True:  # whoever asks again is told again
            await self._queue.put(end)


@asynccontextmanager
async def read_ahead(batches: AsyncGenerator[ChangeBatch, None]) -> AsyncIterator[Prefetch]:
    """Closes the source's iteration before it returns."""
    ahead = Prefetch()
    filling = asyncio.ensure_future(ahead.fill(batches))
    try:
        yield ahead
    finally:
        filling.cancel()
        await asyncio.wait([filling])
        await batches.aclose()
