"""Result files: raw figures as JSON, and the table that people read."""

import json
from pathlib import Path
from statistics import median

from benchmarks.figures import Collected, spread
from benchmarks.reasons import reasons_note
from benchmarks.rows import FORMER, KAFKA, LIMIT, OURS, ROWS, SCALE

HEAD = ["What", "To reach", "Headwater", "Apache Kafka", "The machine's own limit",
        "Server CPU s, ours / Kafka's", "Server MB PSS, ours / Kafka's", "Verdict"]  # fmt: skip
SCALE_HEAD = ["With", "Headwater", "Apache Kafka"]
PAIRS_HEAD = ["What", "The former version", "This version", "Ratio of medians", "Verdict"]
COSTS = (("server_cpu_s", "s of server CPU"), ("server_pss_mb", "MB PSS"))
SCALE_FIGURES = (
    ("pss_mb", "MB PSS"),
    ("idle_cpu_share", "of a core when idle"),
    ("trip_p50_ms", "ms for a small produce"),
)


def write_results(
    directory: Path, name: str, collected: Collected, about: dict[str, object], page: str
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    raw = {"about": about, "figures": collected.figures, "failures": collected.failures}
    (directory / f"{name}.json").write_text(json.dumps(raw, indent=1) + "\n")
    path = directory / f"{name}.md"
    path.write_text(page)
    return path


def read_results(directory: Path, name: str, collected: Collected) -> str:
    """Adds what an earlier run has measured; says of which commits that is."""
    found = json.loads((directory / f"{name}.json").read_text())
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


def pairs_page(collected: Collected, about: dict[str, object]) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    shown: dict[tuple[str, str], tuple[str, str]] = {}
    for row in ROWS:
        for figure, unit in (*row.figures, *COSTS):
            shown.setdefault((row.name, figure), (row.what, unit))
    for what, count in SCALE:
        for figure, unit in SCALE_FIGURES:
            shown[f"{what}-{count}", figure] = (f"{count:,} {what}", unit)
    lines = [pair(collected, *which, *words) for which, words in shown.items()]
    parts = [
        "# The log, measured beside a former version of it\n",
        f"Written by `benchmarks/log.py --former CHECKOUT`. {facts}.\n",
        "Both versions run in turn in each round, each alone, on the same disk, driven by the same "
        "client; who\ncomes first changes every round. A figure is within the noise if the rounds "
        "of both overlap. Codec and\ncompaction need no broker and were left out.\n",
        line(PAIRS_HEAD)
        + line(["---"] * len(PAIRS_HEAD))
        + "".join(map(line, filter(None, lines))),
        others_note(collected),
    ]
    if collected.failures:
        parts += ["## Not measured\n", "".join(f"- {each}\n" for each in collected.failures)]
    return "\n".join(parts)


def pair(collected: Collected, row: str, figure: str, what: str, unit: str) -> list[str] | None:
    now, former = (collected.values(row, who, figure) for who in (OURS, FORMER))
    if not now or not former:
        return None
    ratio = f"{median(now) / median(former):.2f}" if median(former) else "-"
    return [what, f"{spread(former)} {unit}", f"{spread(now)} {unit}", ratio,
            difference(figure, now, former)]  # fmt: skip


def difference(figure: str, now: list[float], former: list[float]) -> str:
    if len(now) == 1:
        return "one round"
    if min(now) <= max(former) and min(former) <= max(now):
        return "within the noise"
    return "better" if (min(now) > max(former)) == figure.endswith("per_second") else "worse"


def others_note(collected: Collected) -> str:
    """How quiet the machine was."""
    used = [
        cores
        for row in collected.figures
        for who in (OURS, KAFKA, FORMER)
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
