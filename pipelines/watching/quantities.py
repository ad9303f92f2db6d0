"""Counts, sizes and durations as people read them at a glance."""

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
