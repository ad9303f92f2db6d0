"""Result files: raw figures as JSON, and the table that people read."""

import json
from pathlib import Path

from benchmarks.figures import Collected, spread
from benchmarks.reasons import reasons_note
from benchmarks.rows import KAFKA, LIMIT, OURS, ROWS, SCALE

HEAD = ["What", "To reach", "Headwater", "Apache Kafka", "The machine's own limit",
        "Server CPU s, ours / Kafka's", "Server MB PSS, ours / Kafka's", "Verdict"]  # fmt: skip
SCALE_HEAD = ["With", "Headwater", "Apache Kafka"]


def write_results(
    directory: Path, collected: Collected, about: dict[str, object], notes: list[str]
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    raw = {"about": about, "figures": collected.figures, "failures": collected.failures}
    (directory / "log.json").write_text(json.dumps(raw, indent=1) + "\n")
    page = directory / "log.md"
    page.write_text(table_page(collected, about, notes))
    return page


def read_results(directory: Path, collected: Collected) -> str:
    """Adds what an earlier run has measured; says of which commits that is."""
    found = json.loads((directory / "log.json").read_text())
    for row, by_whom in found["figures"].items():
        for who, rounds in by_whom.items():
            collected.figures[row][who] += rounds
    collected.failures += found["failures"]
    return str(found["about"]["commit"])


def table_page(collected: Collected, about: dict[str, object], notes: list[str]) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    parts = [
        "# The log, measured beside Apache Kafka\n",
        f"Written by `benchmarks/log.py`. {facts}.\n",
        "Medians, with the least, the largest and the number of rounds. In each round both servers "
        "run in turn,\neach alone, on the same disk, driven by the same client with the same "
        "settings; client and server share\nthe CPUs. Latencies count from the moment a record was "
        "due to be sent.\n",
        line(HEAD)
        + line(["---"] * len(HEAD))
        + "".join(line(row.cells(collected)) for row in ROWS),
        received_note(collected),
        others_note(collected),
        reasons_note(collected),
        "## Cost per partition and per idle connection\n",
        line(SCALE_HEAD) + line(["---"] * 3) + "".join(map(line, scale_cells(collected))),
        *[f"{note}\n" for note in notes],
    ]
    if collected.failures:
        parts += ["## Not measured\n", "".join(f"- {each}\n" for each in collected.failures)]
    return "\n".join(parts)


def others_note(collected: Collected) -> str:
    """How quiet the machine was."""
    used = [
        cores
        for row in collected.figures
        for who in (OURS, KAFKA)
        for cores in collected.values(row, who, "others_cores")
    ]
    return (
        f"While rows were measured, processes that had nothing to do with it used {spread(used)} "
        "of the cores.\n"
    )


def received_note(collected: Collected) -> str:
    """What could be reached at best: os.write alone has no socket to read from."""
    found = [
        f"{spread(collected.values(f'{row}-received', LIMIT, 'mb_per_second'))} MB/s in {row[4:]}"
        for row in ("raw-64k", "raw-1m")
    ]
    return (
        "A bare process that only receives the same requests and writes them, with nothing read in "
        f"them, takes\n{' and '.join(found)} batches.\n"
    )


def scale_cells(collected: Collected) -> list[list[str]]:
    def told(row: str, who: str) -> str:
        if not collected.values(row, who, "pss_mb"):
            return "-"
        memory, idle, trip = (
            spread(collected.values(row, who, name))
            for name in ("pss_mb", "idle_cpu_share", "trip_p50_ms")
        )
        return f"{memory} MB PSS, {idle} of a core when idle, {trip} ms for a small produce"

    return [
        [f"{count:,} {what}", told(f"{what}-{count}", OURS), told(f"{what}-{count}", KAFKA)]
        for what, count in SCALE
    ]


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
