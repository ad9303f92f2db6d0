"""How often a table is read again without a person: twice within an hour."""

STARTS_MAX = 2
AT_ONCE_MS, HOUR_MS = 60_000, 3_600_000


def add_start(starts_ms: tuple[int, ...], now_ms: int) -> tuple[int, ...]:
    """Returns the latest starts with this one. Re-reads directly after another count with it: one
    schema change may be seen in several steps."""
    if starts_ms and now_ms - starts_ms[-1] < AT_ONCE_MS:
        return starts_ms
    return (*starts_ms, now_ms)[-STARTS_MAX:]


def is_one_too_many(starts_ms: tuple[int, ...], now_ms: int) -> bool:
    """Whether a start now would be the third within an hour."""
    recent = [each for each in starts_ms if now_ms - each < HOUR_MS]
    is_apart = bool(recent) and now_ms - recent[-1] >= AT_ONCE_MS
    return is_apart and len(recent) >= STARTS_MAX
