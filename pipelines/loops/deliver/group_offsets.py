"""Tells the log how far a sink is, while the sink goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from headwater.core_log.model.log import Log, Offsets, TopicPartition
from headwater.pipelines.loops.deliver.shielded import FINISH_S_MAX

SPACING_S = 0.25
"""The least time between two tellings: each makes the log wait for its disk."""


class GroupOffsetReporter:
    """What comes soon after something was told waits, and only the newest of it is told."""

    def __init__(self, log: Log, group: str) -> None:
        self._log, self._group = log, group
        self._waiting: dict[TopicPartition, int] = {}
        self._telling: asyncio.Task[None] | None = None
        self._is_awaited = asyncio.Event()

    async def tell(self, offsets: Offsets) -> None:
        """Raises what went wrong with earlier ones."""
        self._waiting |= offsets
        if self._telling is not None and self._telling.done():
            await self.wait_settled()
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())

    async def wait_settled(self) -> None:
        """Returns when the log has been told everything."""
        telling, self._telling = self._telling, None
        if telling is not None:
            self._is_awaited.set()
            await telling
            self._is_awaited.clear()

    async def give_up(self) -> None:
        """Something else has failed, or we are to stop: what is under way may still get there."""
        if self._telling is not None:
            self._is_awaited.set()
            await asyncio.wait([self._telling], timeout=FINISH_S_MAX)
            self._telling.cancel()
            await asyncio.wait([self._telling])
            if not self._telling.cancelled():
                self._telling.exception()

    async def _tell(self) -> None:
        while self._waiting:
            offsets, self._waiting = self._waiting, {}
            await self._log.commit_offsets(self._group, offsets)
            with suppress(TimeoutError):
                async with asyncio.timeout(SPACING_S):
                    await self._is_awaited.wait()


@asynccontextmanager
async def group_offsets(log: Log, group: str) -> AsyncIterator[GroupOffsetReporter]:
    """At the end of the block the log knows what it was to be told."""
    offsets = GroupOffsetReporter(log, group)
    try:
        yield offsets
    except BaseException:
        await offsets.give_up()
        raise
    await offsets.wait_settled()
