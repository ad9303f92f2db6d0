"""What measurements of sources share: rows with goals, their verdicts, and how they are kept."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.figures import Collected, Figures, shown, spread
from benchmarks.pipelines import ground_of
from benchmarks.postgres_history import TICKS_PER_S
from benchmarks.processes import busy_s

RESULTS = Path(__file__).parent / "results"
OURS, PLAIN, DEBEZIUM, TUNED, LIMIT = "headwater", "plain", "debezium", "tuned", "limit"
WARM_UP = TICKS_PER_S
"""Ticks of a first second, in which every reader still starts: written, and not counted."""
TABLE_HEAD = (
    "| What | To reach | Headwater | Headwater in plain Python | Debezium | Debezium, polling"
    " each 5 ms | The server's limit | Verdict |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a figure, and what it has to be."""

    name: str
    what: str
    figure: str
    goal: float | None
    is_least: bool
    plain_goal: float | None = None
    times: float | None = None
    """How many times Debezium's in the same run."""


def add_measured(collected: Collected, name: str, who: str, measure: Callable[[], Figures]) -> None:
    """What cannot be measured keeps its reason, and the round goes on."""
    busy, begun = busy_s(), time.perf_counter()
    try:
        figures = measure()
    except Exception as error:
        collected.fail(name, who, error)
        print(f"{name}, {who}: {type(error).__name__}: {error}", file=sys.stderr)
        return
    figures["busy_cores"] = (busy_s() - busy) / (time.perf_counter() - begun)
    collected.add(name, who, figures)
    told = ", ".join(f"{key} {shown(value)}" for key, value in figures.items())
    print(f"{name}, {who}: {told}", file=sys.stderr)


def waits(committed: dict[int, int], arrived: dict[int, int]) -> Figures:
    """From when the commit returned to its writer; what was there earlier took no time."""
    assert arrived.keys() == committed.keys(), "every tick has arrived"
    counted = sorted(committed)[WARM_UP:]
    cuts = quantiles((max(0, arrived[each] - committed[each]) / 1e3 for each in counted), n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98]}


def ticked(module: str, *given: str) -> dict[int, int]:
    """The time of each commit, written by a process of its own."""
    command = [sys.executable, "-m", module, *given]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    pairs = (line.split() for line in done.stdout.splitlines())
    return {int(number): int(at_us) for number, at_us in pairs}


@contextmanager
def fresh_ground(place: Path, stage: str) -> Iterator[tuple[Path, str]]:
    with (
        tempfile.TemporaryDirectory(prefix=f"{stage}-", dir=place) as directory,
        ground_of(Path(directory), "") as ground,
    ):
        yield Path(directory), ground.bootstrap


def keep(name: str, collected: Collected, page: Callable[[Collected, int], str]) -> None:
    """Beside what was measured at other times of other stages; of a trial nothing is kept."""
    path = RESULTS / f"{name}.json"
    known = json.loads(path.read_text())["figures"] if path.exists() else {}
    every = Collected(known | collected.figures, collected.failures)
    found = {"figures": every.figures, "failures": every.failures}
    path.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(page(every, 1))


def table_of(rows: Sequence[Row], collected: Collected) -> list[str]:
    lines = [line_of(row, collected) for row in rows if collected.figures.get(row.name)]
    return [*TABLE_HEAD, *lines, ""]


def end_of(collected: Collected, shrink: int) -> list[str]:
    lines = list[str]()
    if shrink > 1:
        lines += [f"Only a trial: all counts were divided by {shrink}.", ""]
    if collected.failures:
        lines += ["## Not measured", "", *(f"- {each}" for each in collected.failures), ""]
    return lines


def line_of(row: Row, collected: Collected) -> str:
    cells = [
        spread(values) if (values := collected.values(row.name, who, row.figure)) else "-"
        for who in (OURS, PLAIN, DEBEZIUM, TUNED, LIMIT)
    ]
    return f"| {row.what} | {signal(row)} | {' | '.join(cells)} | {verdict(row, collected)} |"


def signal(row: Row) -> str:
    if row.goal is None:
        return "-"
    parts = [f"at {'least' if row.is_least else 'most'} {row.goal:,g}"]
    if row.plain_goal:
        parts.append(f"{row.plain_goal:,g} in plain Python")
    if row.times:
        parts.append(f"{row.times:g} times Debezium")
    return ", ".join(parts)


def verdict(row: Row, collected: Collected) -> str:
    ours = collected.values(row.name, OURS, row.figure)
    if row.goal is None or not ours:
        return "-"
    said = [judged(median(ours), row.goal, row.is_least)]
    if row.plain_goal and (plain := collected.values(row.name, PLAIN, row.figure)):
        said.append("plain " + judged(median(plain), row.plain_goal, row.is_least))
    if row.times and (theirs := collected.values(row.name, DEBEZIUM, row.figure)):
        said.append(f"{median(ours) / median(theirs):.1f} times Debezium")
    return ", ".join(said)


def judged(middle: float, goal: float, is_least: bool) -> str:
    is_reached = middle >= goal if is_least else middle <= goal
    return "reached" if is_reached else f"missed: {middle / goal:.2f} times the goal"
