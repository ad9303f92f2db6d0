"""The page of `benchmarks/cluster.py`: rows with goals, beside Apache Kafka."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.figures import Collected, shown, spread

OURS, KAFKA, ALONE = "headwater", "kafka", "alone"
HEAD = ["What", "To reach", "Headwater", "Apache Kafka", "Verdict"]
INTRODUCTION = """\
All nodes and the client share the machine. Replication factor 3, acks=all, min.insync.replicas=2.
Headwater answers once the record is on the disks of all three; Kafka waits for no disk, but where
`flush.messages=1` is said. Figures are medians, with the least, the largest and the number beside
them; of pauses the longest counts.
"""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure must be: of itself, or beside another one."""

    most: float | None = None
    least: float | None = None
    beside: tuple[str, str, str] | None = None
    """Row, who, and figure of the other one; the bounds are then times of it."""
    and_more: tuple[str, str, str] | None = None
    """Added to the bound."""
    said: str = ""


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One line: a figure of a row."""

    row: str
    what: str
    figure: str
    goal: Goal | None = None
    taken: Callable[[Sequence[float]], float] = median
    is_extreme: bool = False
    """The longest is shown first, since it is what counts."""
    why: str = ""
    """What was found of the reason where the goal is missed."""


def quarter(row: str) -> Goal:
    return Goal(most=0.25, beside=(row, KAFKA, "server_cpu_s"), said="a quarter of Kafka's")


def at_least(row: str, times: float, said: str) -> Goal:
    return Goal(least=times, beside=(row, KAFKA, "per_second"), said=said)


def pause(row: str, what: str, most: float | None) -> ReportRow:
    goal = None if most is None else Goal(most=most, said=f"at most {most:g}")
    return ReportRow(row, f"longest pause of a writer, s: {what}", "pause_s", goal, max, True)


ROWS = (
    ReportRow(
        "produce-100",
        "500,000 x 100 bytes: CPU seconds of all nodes",
        "server_cpu_s",
        quarter("produce-100"),
    ),
    ReportRow(
        "produce-1000",
        "200,000 x 1 KB: CPU seconds of all nodes",
        "server_cpu_s",
        quarter("produce-1000"),
    ),
    ReportRow(
        "produce-100",
        "records of 100 bytes a second",
        "per_second",
        at_least("produce-100", 1, "Kafka's"),
    ),
    ReportRow(
        "produce-1000",
        "records of 1 KB a second",
        "per_second",
        at_least("produce-1000", 1, "Kafka's"),
    ),
    ReportRow(
        "flushed",
        "the same, Kafka with `flush.messages=1`",
        "per_second",
        at_least("flushed", 2, "twice Kafka's"),
    ),
    ReportRow(
        "latency",
        "acks=all alone, 200 a second, p50, ms",
        "p50_ms",
        Goal(
            most=1,
            beside=("latency", KAFKA, "p50_ms"),
            and_more=("latency", OURS, "disk_ms"),
            said="Kafka's and one round of the disk",
        ),
        why="in memory instead of on the disk it is 2.04 ms where it is 2.56 (medians of three "
        "rounds in turn, in another hour). So a fifth is the disk, to which three nodes sync at "
        "once; the rest is three nodes and a client that take turns on two cores",
    ),
    ReportRow(
        "latency",
        "the same, p99, ms",
        "p99_ms",
        Goal(most=1, beside=("latency", KAFKA, "p99_ms"), said="below Kafka's"),
    ),
    pause("kill-both", "kill -9 of both leaders in one", 2),
    pause("kill-leader", "kill -9 of the partition's leader", 2),
    pause("freeze-both", "SIGSTOP of both leaders in one", 5),
    pause("freeze-leader", "SIGSTOP of the partition's leader", 5),
    pause("stop-both", "both leaders in one stop in order", None),
    pause("stop-leader", "the partition's leader stops in order", None),
    pause("cut-both", "cut links of both leaders in one", 5),
    pause("cut-leader", "cut links of the partition's leader", 5),
    pause("hang-both", "a hung disk of both leaders in one", 5),
    pause("hang-leader", "a hung disk of the partition's leader", 5),
    ReportRow(
        "catch-up",
        "a started node, 1 GB behind: s until all are in sync",
        "seconds",
        Goal(most=10, said="at most 10"),
    ),
    ReportRow(
        "failover",
        "1,000 partitions, kill -9: s until all are led",
        "seconds",
        Goal(most=2, said="at most 2"),
    ),
    ReportRow(
        "failover",
        "the same: latest answer of the others, ms",
        "held_ms",
        Goal(most=50, said="at most 50"),
        max,
        True,
        "this is seen from outside, and so counts the wait for a core: two nodes that begin to "
        "lead and the client share two. Kafka's nodes answer as late, and take longer",
    ),
    ReportRow(
        "idle",
        "1,000 partitions at rest: share of a core, least busy node (it leads a third)",
        "cpu_share_least",
        Goal(most=0.01, said="under 0.01"),
        why="heartbeats, the fetches of the quorum and of what this node follows, and periodic "
        "looks at what is there; docs/decisions/0026-how-followers-copy.md has the figures "
        "without fetch sessions",
    ),
    ReportRow("idle", "the same, the busiest (the controller)", "cpu_share_most"),
    ReportRow("idle", "the same: MB PSS", "pss_mb", Goal(most=90, said="at most 90")),
    ReportRow(
        "produce-100",
        "MB PSS of a node after 100-byte records",
        "pss_mb",
        Goal(most=90, said="at most 90"),
    ),
    ReportRow(
        "pipeline",
        "PostgreSQL to Delta, a kill every 20 s, rows/s",
        "per_second",
        Goal(least=0.5, beside=("pipeline", ALONE, "per_second"), said="half of one broker's"),
    ),
)


def write(directory: Path, collected: Collected, about: dict[str, object]) -> Path:
    """Keeps the figures of rows that were not measured now."""
    directory.mkdir(parents=True, exist_ok=True)
    raw = {"about": about, "figures": collected.figures, "failures": collected.failures}
    (directory / "cluster.json").write_text(json.dumps(raw, indent=1) + "\n")
    page = directory / "cluster.md"
    page.write_text(page_of(collected, about))
    return page


def read(directory: Path, collected: Collected) -> str:
    """Adds the rounds of earlier runs; returns of which Kafka they are."""
    path = directory / "cluster.json"
    if not path.exists():
        return "none"
    found = json.loads(path.read_text())
    for row, by_whom in found["figures"].items():
        for who, rounds in by_whom.items():
            collected.figures[row][who] += rounds
    collected.failures += found["failures"]
    return str(found["about"].get("kafka", "none"))


def page_of(collected: Collected, about: dict[str, object]) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    lines = [
        "# Three nodes, measured beside three of Apache Kafka\n",
        f"Written by `benchmarks/cluster.py`. {facts}.\n",
        INTRODUCTION,
        line(HEAD),
        line(["---"] * len(HEAD)),
        *(line(cells(row, collected)) for row in ROWS),
        "",
        reasons_note(collected),
        others_note(collected),
    ]
    if alone := collected.values("pipeline", ALONE, "per_second"):
        lines.append(f"The same pipeline over one broker: {spread(alone)} rows/s.\n")
    lines += [f"- not measured: {each}" for each in collected.failures]
    return "\n".join(lines).rstrip() + "\n"


def reasons_note(collected: Collected) -> str:
    missed = [row for row in ROWS if verdict(row, collected).startswith("missed")]
    if not missed:
        return ""
    lines = "".join(f"- {row.what}: {row.why or 'not found out'}.\n" for row in missed)
    return f"## Where it is missed, and why\n\n{lines}"


def others_note(collected: Collected) -> str:
    """How quiet the machine was."""
    used = [
        share
        for row in ("produce-100", "produce-1000")
        for who in (OURS, KAFKA)
        for share in collected.values(row, who, "others_cores")
    ]
    if not used:
        return ""
    return f"Other processes used {spread(used)} of the two cores meanwhile.\n"


def cells(row: ReportRow, collected: Collected) -> list[str]:
    said = row.goal.said if row.goal else "-"
    values = [told(row, collected.values(row.row, who, row.figure)) for who in (OURS, KAFKA)]
    return [row.what, said, *values, verdict(row, collected)]


def told(row: ReportRow, values: list[float]) -> str:
    if not values:
        return "-"
    if not row.is_extreme:
        return spread(values)
    return f"{shown(max(values))} (median {shown(median(values))}; {len(values)})"


def verdict(row: ReportRow, collected: Collected) -> str:
    values, goal = collected.values(row.row, OURS, row.figure), row.goal
    if goal is None:
        return "-"
    if not values:
        return "not measured"
    ours, other = row.taken(values), 1.0
    if goal.beside is not None:
        theirs = collected.values(*goal.beside)
        if not theirs:
            return "not compared"
        other = row.taken(theirs)
    more = median(collected.values(*goal.and_more) or [0.0]) if goal.and_more else 0.0
    if goal.most is not None:
        return judged(ours <= goal.most * other + more, ours / other, goal)
    assert goal.least is not None, "a goal has one bound"
    return judged(ours >= goal.least * other, ours / other, goal)


def judged(is_reached: bool, figure: float, goal: Goal) -> str:
    beside = f"{figure:.2f} times" if goal.beside is not None else shown(figure)
    return "reached" + (f": {beside}" if goal.beside else "") if is_reached else f"missed: {beside}"


def line(parts: Sequence[str]) -> str:
    return f"| {' | '.join(parts)} |"
