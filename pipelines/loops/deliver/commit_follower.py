"""Follows a pipeline's commits through `__headwater_commits`, in order and without missing one."""

from collections import deque

from headwater.core_log.model.log import FetchLimit, Isolation, Log
from headwater.core_log.records import arrow_codec
from headwater.pipelines.journal.commits import Commit, commits_home, decode_commits

FETCH_BYTES = 1 << 20
GATHERED_BYTES = 4 << 10
"""Some twenty commits, so that what makes a slice due besides time is not missed for long."""


class CommitFollower:
    """The commits from an offset on. `next_offset` is where a restart has to go on."""

    def __init__(self, log: Log, pipeline: str, *, from_offset: int) -> None:
        self._log, self._pipeline = log, pipeline
        self._home = commits_home(pipeline)
        self._ready: deque[tuple[int, Commit]] = deque()
        self._fetch_from = from_offset
        self.next_offset = from_offset
        """Everything below has been handed out, or is nobody's concern."""

    @property
    def has_more(self) -> bool:
        """Whether the next one needs no waiting."""
        return bool(self._ready)

    async def next(self, *, wait_ms: int, gathers: bool = False) -> tuple[int, Commit] | None:
        """The next commit and its offset; None when there was none in time. Who `gathers` has time
        until then, and would rather not wake up for each."""
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
