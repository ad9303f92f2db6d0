"""Counts, sizes and durations as people read them at a glance."""

UNKNOWN = "-"
_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))
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
    if duration_ms < 1_000:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1_000:.1f} s"
    for least, name in _DURATIONS:
        if duration_ms >= least:
            digits = 0 if name == "min" else 1
            return f"{duration_ms / least:.{digits}f} {name}"
    raise AssertionError("a minute is the least of the longer units")
