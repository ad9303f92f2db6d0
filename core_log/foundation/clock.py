"""The clock is an argument of all code that needs the time, so that every behaviour can be
simulated."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock: wall-clock time for records, monotonic time for waiting."""

    def now_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...


def unix_ms() -> int:
    """Returns the machine's wall-clock time, for commands and other edges."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return unix_ms()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
