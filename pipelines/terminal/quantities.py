"""Counts, sizes and durations as people read them at a glance."""

import re
from collections import deque
from datetime import UTC, datetime, timedelta

UNKNOWN = "-"
DAY_MS = 86_400_000
_DURATIONS = (
    (1, 0, 1_000, "ms"),
    (1_000, 1, 60, "s"),
    (60_000, 0, 60, "min"),
    (3_600_000, 1, 24, "h"),
)
"""Milliseconds of a unit, digits behind its point, how many of it are the next one, its name."""
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNTS = ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k"))
_THOUSAND = {"G": 1_000_000_000, "M": 1_000_000, "k": 1_000}


def count_text(count: float | None) -> str:
    """`1,840`, `96.4k`, `41.2M`."""
    if count is None:
        return UNKNOWN
    for least, letter in _COUNTS:
        if count >= least:
            return f"{count / _THOUSAND[letter]:.1f}{letter}"
    return f"{count:,.0f}"


def rate_text(per_second: float | None) -> str:
    """The same, but for a trickle one digit behind the point."""
    if per_second and 0 < per_second < 9.95:
        return f"{per_second:.1f}"
    return count_text(per_second)


def size_text(size: float | None) -> str:
    """`312.0 MiB`."""
    if size is None:
        return UNKNOWN
    for least, name in _SIZES:
        if size >= least:
            return f"{size / least:.1f} {name}"
    return f"{size:,.0f} B"


def duration_text(duration_ms: float | None) -> str:
    """`850 ms`, `2.1 s`, `18 min`, `3.2 h`, `2.0 d`."""
    if duration_ms is None:
        return UNKNOWN
    for unit_ms, digits, below, name in _DURATIONS:
        if round(duration_ms / unit_ms, digits) < below:
            return f"{duration_ms / unit_ms:.{digits}f} {name}"
    return f"{duration_ms / DAY_MS:.1f} d"


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


AGO = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
COUNT = re.compile("[0-9]{1,18}")
PER_PARTITION = re.compile("[0-9]{1,10}:[0-9]{1,18}(,[0-9]{1,10}:[0-9]{1,18})*")
"""An offset for each of some partitions."""
UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(timestamp_ms: int) -> str:
    """As ISO 8601 in UTC; what no calendar holds stays a number."""
    if timestamp_ms < 0:
        return "-"
    try:
        time = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def parse_count(text: str) -> int | None:
    """The whole number that the text is; None for all else, such as a number that no offset and no
    time in milliseconds has."""
    return int(text) if COUNT.fullmatch(text) else None


def parse_time(text: str, now_ms: int) -> int | None:
    """Milliseconds since 1970 of an ISO date or time (UTC unless it says otherwise), or of "10m"
    ago; None where the text is neither.
    """
    ago = AGO.fullmatch(text)
    if ago:
        return max(0, now_ms - int(ago[1]) * UNIT_MS[ago[2]])
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - EPOCH) // timedelta(milliseconds=1)
