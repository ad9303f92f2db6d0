"""Rates of use over the last seconds, and the wait until they are within a limit, as in Kafka."""

from collections import deque

WINDOW_MS = 1_000
WINDOWS = 11
"""Kafka's `quota.window.num`: ten whole windows and the present one."""
KEPT_MS = WINDOWS * WINDOW_MS
MS_PER_S = 1_000


class SampledRate:
    """A rate per second over the last windows."""

    def __init__(self, *, is_simple: bool = False) -> None:
        """A simple one counts from its first second; it is Kafka's SimpleRate, for replication. The
        other is for clients, and leaves them a burst of ten seconds."""
        self._is_simple = is_simple
        self._samples = deque[list[float]](maxlen=WINDOWS + 1)
        """Of each: its begin, its last event, and the sum."""

    def record(self, value: float, now_ms: int) -> None:
        if not self._samples or now_ms - self._samples[-1][0] >= WINDOW_MS:
            self._samples.append([now_ms, now_ms, 0.0])
        last = self._samples[-1]
        last[1], last[2] = now_ms, last[2] + value

    def total(self, now_ms: int) -> float:
        while self._samples and now_ms - self._samples[0][1] >= KEPT_MS:
            self._samples.popleft()
        return sum(each[2] for each in self._samples)

    def per_s(self, now_ms: int) -> float:
        return self.total(now_ms) / (self._window_ms(now_ms) / MS_PER_S)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Returns the time after which the rate is at its limit, if nothing more is recorded."""
        rate = self.per_s(now_ms)
        return round((rate - limit) / limit * self._window_ms(now_ms)) if rate > limit else 0

    def room(self, limit: float, now_ms: int) -> int:
        """Returns how much may be recorded now until the rate is at its limit. That is never more
        than one window's worth, whatever was left unused before."""
        total = self.total(now_ms)
        begun_ms, _, present = self._samples[-1] if self._samples else (now_ms, now_ms, 0.0)
        if now_ms - begun_ms >= WINDOW_MS:
            present = 0.0
        left = limit * self._window_ms(now_ms) / MS_PER_S - total
        return max(0, int(min(left, limit * WINDOW_MS / MS_PER_S - present)))

    def _window_ms(self, now_ms: int) -> int:
        """Returns the length that the total is divided by: at least ten whole windows, so that the
        first second of a client does not count as all of its time; or else at least one."""
        oldest_ms = self._samples[0][0] if self._samples else now_ms
        passed_ms = int(now_ms - oldest_ms)
        if self._is_simple:
            return max(passed_ms, WINDOW_MS)
        missing = WINDOWS - 1 - passed_ms // WINDOW_MS
        return max(1, passed_ms + max(0, missing) * WINDOW_MS)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing of it would be missed."""
        return not self.total(now_ms)


class TokenBucket:
    """Tokens that are refilled at a rate, up to those of all windows. They may be owed."""

    def __init__(self, limit: float, now_ms: int) -> None:
        self._tokens, self._filled_ms = limit * WINDOWS, now_ms

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = self._refill(limit, now_ms) - count

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Returns the time until no token is owed."""
        return max(0, round(-self._refill(limit, now_ms) / limit * MS_PER_S))

    def _refill(self, limit: float, now_ms: int) -> float:
        earned = limit * (now_ms - self._filled_ms) / MS_PER_S
        self._tokens = min(limit * WINDOWS, self._tokens + earned)
        self._filled_ms = now_ms
        return self._tokens
