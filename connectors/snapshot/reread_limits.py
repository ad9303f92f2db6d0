"""Whether a table is read again without a person: how often, how many rows, and the free space."""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.connectors.source import FreeSpace
from headwater.core_log.model.table_schema import TableId

ROW_BYTES = 100
"""About what a row takes, in a table that was never analyzed."""
READ_BYTES_PER_SECOND = 20 << 20
"""About the speed at which a table is read from disk, on a machine of two cores."""

STARTS_MAX = 2
"""Within an hour."""
AT_ONCE_MS, HOUR_MS = 60_000, 3_600_000


@dataclass(frozen=True, slots=True)
class RereadEstimate:
    """An estimate for one table, by its size and the last ANALYZE."""

    rows: int
    bytes: int
    seconds: float
    between: str
    """Hours in which rows may be read; empty where that is always."""
    free: Sequence[FreeSpace]

    def in_words(self) -> str:
        said = f"{self.rows_in_words()}, {_size(self.bytes)}, {_duration(self.seconds)}"
        if self.between:
            said += f" of the hours {self.between} (UTC)"
        rooms = [f"{_size(each.bytes)} free for {_listed(each.users)}" for each in self.free]
        return "; ".join([said, *rooms])

    def rows_in_words(self) -> str:
        return f"about {self.rows:,} rows"

    def lacks_space(self) -> str:
        """The log, and each target, gets about as much as the table has; empty where it can."""
        for each in self.free:
            needed = self.bytes * len(each.users)
            if needed > each.bytes:
                return (
                    f"it needs about {_size(needed)} for {_listed(each.users)}, and"
                    f" {_size(each.bytes)} are free"
                )
        return ""

    def forbids(self, rows_max: int | None) -> str:
        """Returns why the table waits for a person; empty if it is small enough and has room."""
        if rows_max is not None and self.rows > rows_max:
            return f"it has {self.rows_in_words()}, and `snapshot.reread_max_rows` is {rows_max:,}"
        return self.lacks_space()


def estimate_reread(
    rows: int,
    size: int,
    *,
    rows_per_second: int | None,
    between: str,
    free: Sequence[FreeSpace],
) -> RereadEstimate:
    """`size`: of the table, in bytes."""
    seconds = size / READ_BYTES_PER_SECOND
    if rows_per_second is not None:
        seconds = max(seconds, rows / rows_per_second)
    return RereadEstimate(rows, size, seconds, between, free)


def begun_by(pipeline: str, table: TableId) -> str:
    return f"headwater snapshot start {pipeline}/{table} reads it again"


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


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _size(size: int) -> str:
    for least, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} B"


def _duration(seconds: float) -> str:
    for least, unit in ((3_600, "h"), (60, "min")):
        if seconds >= least:
            return f"{seconds / least:.1f} {unit}"
    return f"{max(seconds, 1):.0f} s"
