"""How much happens per second, over the last while."""

from collections import deque

SLOT_MS = 1_000
"""Amounts of one second are added up, so that memory does not grow with the traffic."""


class Rate:
    """A moving average over a window of monotonic time; 0 once the window has passed in silence."""

    def __init__(self, *, window_ms: int) -> None:
        self._window_ms = window_ms
        self._first_ms: int | None = None
        self._slots: deque[list[int]] = deque()  # when it began, how much

    def add(self, amount: int, *, now_ms: int) -> None:
        if self._first_ms is None:
            self._first_ms = now_ms
        if self._slots and now_ms - self._slots[-1][0] < SLOT_MS:
            self._slots[-1][1] += amount
        else:
            self._slots.append([now_ms, amount])
        self._forget(now_ms)

    def per_s(self, *, now_ms: int) -> float:
        """Young rates are taken over the time that has passed, a second at least."""
        self._forget(now_ms)
        if self._first_ms is None or not self._slots:
            return 0.0
        span_ms = min(self._window_ms, max(now_ms - self._first_ms, SLOT_MS))
        return sum(amount for _, amount in self._slots) * 1_000 / span_ms

    def _forget(self, now_ms: int) -> None:
        while self._slots and now_ms - self._slots[0][0] > self._window_ms:
            self._slots.popleft()
        if not self._slots:
            self._first_ms = None
