"""How fast rows may pass, over all who read them."""

import asyncio

from headwater.core_log.foundation.clock import Clock


class RateLimit:
    """Rows that have passed are paid for by waiting, so that a piece may be of any size."""

    def __init__(self, clock: Clock, rows_per_second: int | None) -> None:
        self._clock, self._rate = clock, rows_per_second
        self._free_ms: float = clock.monotonic_ms()

    def owed_ms(self, rows: int) -> float:
        """How long to wait for these rows, and those before them."""
        if self._rate is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        self._free_ms = max(self._free_ms, now_ms) + rows * 1_000 / self._rate
        return self._free_ms - now_ms

    async def passing(self, rows: int) -> None:
        if (wait_ms := self.owed_ms(rows)) > 0:
            await asyncio.sleep(wait_ms / 1_000)
