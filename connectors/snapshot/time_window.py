"""When snapshots may read rows: in the daily time window (`between`), at a limited rate, unless
paused."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from headwater.connectors.source import Remark, SourceContext
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import Diagnostic, first_names
from headwater.core_log.foundation.schedule import opening_ms
from headwater.core_log.model.table_schema import TableId

WAITING = "snapshot hours"
LOOK_MS = 1_000
"""Interval at which the clock is checked, because it may be set meanwhile."""
PAUSED = "paused snapshots"
"""Name of the remark."""


@dataclass(slots=True)
class TimeWindow:
    """The time window `between` of the file, in UTC; a chunk that has begun is finished."""

    between: str
    context: SourceContext

    @property
    def are_on(self) -> bool:
        return not self._left_ms()

    async def coming(self, *, tables: int) -> None:
        """Returns at once inside the window; outside of it the status shows the wait."""
        if self.are_on:
            return
        finding = Diagnostic(
            f"rows of {tables} tables wait for the time window {self.between} (UTC)",
            "",
            is_fatal=False,
        )
        self.context.report(Remark(WAITING, finding))
        while True:
            left_ms = self._left_ms()
            if not left_ms:
                break
            await asyncio.sleep(min(left_ms, LOOK_MS) / 1_000)
        self.context.report(Remark(WAITING, None))

    def _left_ms(self) -> int:
        now_ms = self.context.clock.now_ms()
        return opening_ms(self.between, now_ms) - now_ms


class RateLimit:
    """A rate limit that counts rows after they have passed, so that a batch may have any size."""

    def __init__(self, clock: Clock, rows_per_second: int | None) -> None:
        self._clock, self._rate = clock, rows_per_second
        self._free_ms: float = clock.monotonic_ms()

    def owed_ms(self, rows: int) -> float:
        """Returns how long to wait for these rows and those before them."""
        if self._rate is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        self._free_ms = max(self._free_ms, now_ms) + rows * 1_000 / self._rate
        return self._free_ms - now_ms

    async def passing(self, rows: int) -> None:
        if (wait_ms := self.owed_ms(rows)) > 0:
            await asyncio.sleep(wait_ms / 1_000)


@dataclass(slots=True)
class PausedSnapshots:
    context: SourceContext
    _told: Collection[TableId] | None = None

    def tell(self, tables: Collection[TableId]) -> None:
        """Reports the paused tables, if they are others than those of the last call."""
        if tables == self._told:
            return
        self._told = tables
        self.context.report(Remark(PAUSED, self._finding(sorted(map(str, tables)))))

    def _finding(self, names: list[str]) -> Diagnostic | None:
        if not names:
            return None
        table = names[0] if len(names) == 1 else "TABLE"
        return Diagnostic(
            f"the snapshot of {first_names(names)} is paused",
            f"headwater snapshot resume {self.context.pipeline}/{table}",
            is_fatal=False,
        )
