"""Rows of a table of results: what is measured, what is to be reached, and whether it was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.figures import Figures, spread

HEAD = ["| What | To reach | Measured | Verdict |", "| --- | --- | --- | --- |"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    what: str
    figure: str
    goal: float | None
    """None where only the figure itself is wanted."""
    is_least: bool
    measure: Callable[[Any], Figures]


def table_of(rows: Sequence[Row], found: Mapping[str, Sequence[Figures]]) -> list[str]:
    """The lines of the table; a row that was not measured says so."""
    return HEAD + [
        _line(row, [each[row.figure] for each in found.get(row.name, ())]) for row in rows
    ]


def _line(row: Row, values: list[float]) -> str:
    if not values:
        return f"| {row.what} | | not measured | |"
    if row.goal is None:
        return f"| {row.what} | | {spread(values)} | |"
    middle = median(values)
    is_reached = middle >= row.goal if row.is_least else middle <= row.goal
    goal = f"at {'least' if row.is_least else 'most'} {row.goal:,g}"
    verdict = "reached" if is_reached else f"missed: {middle / row.goal:.2f} times the goal"
    return f"| {row.what} | {goal} | {spread(values)} | {verdict} |"
