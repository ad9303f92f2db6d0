"""Reads a few batches of a source, and starts to encode them, while the log is busy with earlier
ones."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import ChangeBatch
from headwater.pipelines.loops.ingest.encoder import Encoder

BATCHES_MAX = 2
"""The only queue in the data path; it is short because each batch may be large."""


class Wake:
    """Comes instead of a batch when there is other work between two transactions."""


class Prefetch:
    """Yields batches in order; the source's end or error comes after the last of them."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ChangeBatch | Wake | Exception | None] = asyncio.Queue(
            BATCHES_MAX
        )
        self._first: ChangeBatch | None = None

    async def next(self) -> ChangeBatch | None:
        """Returns None if the source has ended."""
        while isinstance(found := await self.next_or_wake(), Wake):
            pass  # the work is done after the transaction
        return found

    async def next_or_wake(self) -> ChangeBatch | Wake | None:
        if (first := self._take_first()) is not None:
            return first
        found = await self._queue.get()
        if isinstance(found, Exception):
            raise found
        return found

    def wake(self) -> None:
        """Lets `next_or_wake` return, should it wait."""
        if self._queue.empty():
            self._queue.put_nowait(Wake())

    async def next_within(self, wait_ms: int) -> ChangeBatch | None:
        """Returns None also after the timeout, for other work, or after an error of the source:
        earlier batches can still be committed, and `next` raises the error."""
        if (first := self._take_first()) is not None:
            return first
        try:
            if self._queue.empty() and wait_ms > 0:
                async with asyncio.timeout(
                    wait_ms / 1_000
                ):  # wait_for of 3.11 swallows our own cancellation
                    found = await self._queue.get()
            else:
                found = self._queue.get_nowait()
        except (TimeoutError, asyncio.QueueEmpty):
            return None
        return None if isinstance(found, (Exception, Wake)) else found

    def put_back(self, batch: ChangeBatch) -> None:
        """The batch that was taken last is the next one again."""
        assert self._first is None, "only one batch is put back at a time"
        self._first = batch

    def _take_first(self) -> ChangeBatch | None:
        first, self._first = self._first, None
        return first

    async def fill(
        self, batches: AsyncGenerator[ChangeBatch, None], encoder: Encoder, clock: Clock
    ) -> None:
        end: Exception | None = None
        try:
            async for batch in batches:
                encoder.start_batch(batch, now_ms=clock.now_ms())
                await self._queue.put(batch)
        except Exception as error:
            end = error
        while True:  # a repeated call returns the same
            await self._queue.put(end)


@asynccontextmanager
async def prefetch(
    batches: AsyncGenerator[ChangeBatch, None], encoder: Encoder, clock: Clock
) -> AsyncIterator[Prefetch]:
    """Closes the source's iterator before it returns."""
    ahead = Prefetch()
    filling = asyncio.ensure_future(ahead.fill(batches, encoder, clock))
    try:
        yield ahead
    finally:
        filling.cancel()
        try:
            await wait_for_end(filling)
        finally:
            await batches.aclose()
