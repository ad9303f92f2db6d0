"""How long a failing task is tried again, and when it is given up: no clock, no waiting."""

from collections import deque
from dataclasses import dataclass, field
from random import Random

CRASHES_MAX = 3
CRASH_WINDOW_MS = 600_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The values of `errors.retry` of a pipeline."""

    for_ms: int = 600_000
    backoff_ms: int = 1_000
    backoff_ms_max: int = 60_000


@dataclass(slots=True)
class Backoff:
    """The pause before each further attempt: doubled up to a limit, and never quite the same, so
    that what failed together does not come back together."""

    patience: RetryPolicy
    random: Random
    attempts: int = 0

    def next_ms(self) -> int:
        # 2 ** 30 is beyond every limit; an outage of a week must not make the number itself long.
        steepest = min(self.attempts, 30)
        self.attempts += 1
        full = min(self.patience.backoff_ms << steepest, self.patience.backoff_ms_max)
        return round(full * (0.75 + self.random.random() / 4))

    def reset(self) -> None:
        self.attempts = 0


@dataclass(slots=True)
class Incident:
    """Failures that belong together: from the first until the task has run well again."""

    backoff: Backoff
    since_ms: int | None = None

    def on_ran(self, *, for_ms: int, has_moved: bool) -> None:
        """How the attempt went that has just failed."""
        if has_moved or for_ms >= self.backoff.patience.for_ms:
            self.since_ms = None
            self.backoff.reset()

    def next_delay_ms(self, now_ms: int, *, is_connection: bool) -> int | None:
        """None when it was tried for long enough; only connections are tried for ever."""
        if self.since_ms is None:
            self.since_ms = now_ms
        is_over = now_ms - self.since_ms >= self.backoff.patience.for_ms
        if is_over and not is_connection:
            return None
        return self.backoff.next_ms()


@dataclass(slots=True)
class Crashes:
    """Failures that nobody foresaw: the third within ten minutes is the last."""

    times_ms: deque[int] = field(default_factory=deque)

    def on_crash(self, now_ms: int) -> int:
        """How many there were within the window, this one included."""
        self.times_ms.append(now_ms)
        while self.times_ms[0] <= now_ms - CRASH_WINDOW_MS:
            self.times_ms.popleft()
        return len(self.times_ms)

    def copy(self) -> "Crashes":
        return Crashes(deque(self.times_ms))
