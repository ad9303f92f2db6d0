"""Commits a sink's group offsets beside its work."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from headwater.core_log.client.gather import let_go, wait_for_end
from headwater.core_log.model.log import FetchLimit, Isolation, Log, Offsets, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.journal.commits import Commit, commits_home, decode_commits

SPACING_S = 0.25
"""Least time between two commits: each makes the log wait for its disk."""


class GroupOffsetReporter:
    """Commits group offsets. If commits come too fast, only the newest offsets are sent."""

    def __init__(self, log: Log, group: str) -> None:
        self._log, self._group = log, group
        self._waiting: dict[TopicPartition, int] = {}
        self._reporting: asyncio.Task[None] | None = None
        self._is_awaited = asyncio.Event()

    async def report(self, offsets: Offsets) -> None:
        """Commits offsets soon; raises the error of an earlier commit."""
        self._waiting |= offsets
        if self._reporting is not None and self._reporting.done():
            await self.wait_settled()
        if self._reporting is None:
            self._reporting = asyncio.create_task(self._report())

    async def wait_settled(self) -> None:
        telling, self._reporting = self._reporting, None
        if telling is not None:
            self._is_awaited.set()
            await telling
            self._is_awaited.clear()

    async def give_up(self) -> None:
        """Cancels: a commit in flight may still succeed."""
        if self._reporting is not None:
            self._is_awaited.set()
            try:
                await wait_for_end(self._reporting, for_s_max=FINISH_S_MAX)
            finally:
                await let_go(self._reporting)

    async def _report(self) -> None:
        while self._waiting:
            offsets, self._waiting = self._waiting, {}
            await self._log.commit_offsets(self._group, offsets)
            with suppress(TimeoutError):
                async with asyncio.timeout(SPACING_S):
                    await self._is_awaited.wait()


@asynccontextmanager
async def group_offsets(log: Log, group: str) -> AsyncIterator[GroupOffsetReporter]:
    """Commits all offsets before the block ends."""
    offsets = GroupOffsetReporter(log, group)
    try:
        yield offsets
    except BaseException:
        await offsets.give_up()
        raise
    await offsets.wait_settled()


FETCH_BYTES = 1 << 20
GATHERED_BYTES = 4 << 10
"""Some twenty commits, so that a slice that is due by size is soon noticed."""


class CommitFollower:
    """Reads commits from an offset on. A restart continues at `next_offset`."""

    def __init__(self, log: Log, pipeline: str, *, from_offset: int) -> None:
        self._log, self._pipeline = log, pipeline
        self._home = commits_home(pipeline)
        self._ready: deque[tuple[int, Commit]] = deque()
        self._fetch_from = from_offset
        self.next_offset = from_offset
        """Everything below was returned or is irrelevant."""

    @property
    def has_more(self) -> bool:
        """Returns whether the next commit is there without waiting."""
        return bool(self._ready)

    async def next(self, *, wait_ms: int, gathers: bool = False) -> tuple[int, Commit] | None:
        """Returns the next commit and its offset; None if there was none in time. With `gathers` it
        waits longer to read several at once."""
        if not self._ready:
            await self._fetch(wait_ms, GATHERED_BYTES if gathers else 1)
        if not self._ready:
            self.next_offset = self._fetch_from
            return None
        offset, commit = self._ready.popleft()
        self.next_offset = offset + 1 if self._ready else self._fetch_from
        return offset, commit

    async def _fetch(self, wait_ms: int, bytes_min: int) -> None:
        limit = FetchLimit(bytes_max=FETCH_BYTES, bytes_min=bytes_min, wait_ms_max=wait_ms)
        wanted = {self._home: self._fetch_from}
        for part in await self._log.fetch(wanted, limit=limit, isolation=Isolation.COMMITTED):
            columns = arrow_codec.decode(
                part.data, from_offset=self._fetch_from, partition=self._home
            )
            self._ready.extend(decode_commits(columns, self._pipeline))
            self._fetch_from = part.next_offset


FINISH_S_MAX = 10.0
"""After this long unfinished work is cancelled too; the next start repeats it."""


async def shield(work: Coroutine[Any, Any, None], *, wait_s_max: float = FINISH_S_MAX) -> None:
    """Delays a cancellation, and any that follows it, until `work` is done."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        with suppress(asyncio.CancelledError):
            await wait_for_end(running, for_s_max=wait_s_max)
        await let_go(running)
        raise
