"""How much is to be read of a table that is to be read again, how long that takes, and the room."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.connectors.postgres.server.connection import PgConnection
from headwater.connectors.postgres.snapshot.chunk_planner import TableSize, sizes_of
from headwater.connectors.source import FreeSpace

if TYPE_CHECKING:
    from headwater.connectors.postgres.settings import SnapshotSettings

ROW_BYTES = 100
"""About what a row takes, in a table that was never analyzed."""
READ_BYTES_PER_SECOND = 20 << 20
"""Of a table on disk, about, on a machine of two cores."""


@dataclass(frozen=True, slots=True)
class RereadEstimate:
    """Of one table, by its size and the last ANALYZE."""

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


async def estimate_of(
    connection: PgConnection, oid: int, settings: "SnapshotSettings", free: Sequence[FreeSpace]
) -> RereadEstimate:
    sizes = await sizes_of(connection, [oid])
    rows, total = sum(map(_rows_of, sizes)), sum(each.bytes for each in sizes)
    seconds = total / READ_BYTES_PER_SECOND
    if settings.max_rows_per_second is not None:
        seconds = max(seconds, rows / settings.max_rows_per_second)
    return RereadEstimate(rows, total, seconds, settings.between, free)


def _rows_of(size: TableSize) -> int:
    return size.rows_expected or size.bytes // ROW_BYTES


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
