"""Why a row of the log's table can miss what it should reach, as far as that was found out."""

from benchmarks.figures import Collected
from benchmarks.rows import ROWS

SLOW_HOURS = (
    "an absolute goal, on a machine whose own speed changes by half from hour to hour: compare the "
    "spread of its limits"
)
REASONS = {
    "raw": "the limit writes what is in memory, with no socket to read from; the bare process "
    "above has one. What is left between that and us is one thread that takes requests apart, "
    "checks their sums and answers, in Python",
    "fetch": "the limit sends without being asked; here each megabyte is a request that is read "
    "and answered in Python",
    "consume": "the client is what is busy: the server takes a tenth of a second of CPU or less; "
    "the medians lie within the spread of the rounds",
    "produce": SLOW_HOURS,
    "synced": "server and client share the cores with sixty-four connections; the disk's own "
    "figure comes from a process that does nothing but write and sync",
    "latency-acknowledged": SLOW_HOURS,
    "latency-consumed": "nothing is readable before it is on disk, which is one sync: Kafka as it "
    "comes waits for none",
    "start": SLOW_HOURS + "; most of it is the import of Python modules",
    "compaction": SLOW_HOURS,
    "codec": SLOW_HOURS,
}
"""By what the names of the rows begin with."""


def reasons_note(collected: Collected) -> str:
    """Nothing where no row was missed."""
    told: dict[str, list[str]] = {}
    for row in ROWS:
        if "missed" in row.cells(collected)[-1]:
            found = (why for start, why in REASONS.items() if row.name.startswith(start))
            told.setdefault(next(found, "not found out"), []).append(row.what)
    lines = "".join(f"- {'; '.join(rows)}: {why}.\n" for why, rows in told.items())
    return f"## Where it is missed, and why\n\n{lines}" if lines else ""
