"""Parts that every follower of a replication stream has: its heartbeat and its waits."""

import asyncio
from typing import Any

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import ChangeBatch, EventMessages

WAIT_S = 0.01
"""How long the next chunk waits for the stream: longer than changes that have come need to be
read, and much shorter than a chunk."""


class SourceHeartbeat:
    """Says when the next one is due."""

    def __init__(self, pipeline: str, clock: Clock, *, every_ms: int) -> None:
        """`every_ms`: 0 for none."""
        self._pipeline, self._clock, self._every_ms = pipeline, clock, every_ms
        self._beat_ms = clock.monotonic_ms()

    @property
    def is_due(self) -> bool:
        due_ms = self.due_ms
        return due_ms is not None and due_ms <= 0

    @property
    def due_ms(self) -> int | None:
        """The time until the next one; None if there is none."""
        if not self._every_ms:
            return None
        return self._beat_ms + self._every_ms - self._clock.monotonic_ms()

    def beat(self) -> tuple[EventMessages, ...]:
        """Returns the notice if it is due."""
        if not self.is_due:
            return ()
        self._beat_ms = self._clock.monotonic_ms()
        key, value = {"serverName": self._pipeline}, {"ts_ms": self._clock.now_ms()}
        return (EventMessages.of("heartbeat", [key], [value]),)


async def until_readable(descriptor: int) -> None:
    """The socket is read by the caller, without blocking: it may have its own encryption."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()

    def is_readable() -> None:
        loop.remove_reader(descriptor)
        if not waiting.done():
            waiting.set_result(None)

    loop.add_reader(descriptor, is_readable)
    try:
        await waiting
    finally:
        loop.remove_reader(descriptor)


async def has_stream_next(coming: "asyncio.Future[Any] | None", batch: ChangeBatch) -> bool:
    """Returns whether the stream goes on behind this batch of rows, or nobody waits for it.
    Otherwise all chunks that are ready would be emitted before a change, and a busy machine takes
    seconds for them."""
    if not (batch.tables and batch.positions):
        return False
    if coming is None:
        return True
    await asyncio.wait([coming], timeout=WAIT_S)
    return coming.done()
