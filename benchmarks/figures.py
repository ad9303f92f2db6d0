"""Measured figures: collected per row, server and round, and boiled down to medians."""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median

Figures = dict[str, float]


@dataclass(slots=True)
class Collected:
    """Everything measured in a run. A row that could not be measured keeps its reason."""

    figures: dict[str, dict[str, list[Figures]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Row, then who was measured, then one entry per round."""
    failures: list[str] = field(default_factory=list)

    def add(self, row: str, who: str, figures: Figures) -> None:
        self.figures[row][who].append(figures)

    def fail(self, row: str, who: str, error: Exception) -> None:
        self.failures.append(f"{row}, {who}: {type(error).__name__}: {error}")

    def values(self, row: str, who: str, name: str) -> list[float]:
        rounds = self.figures.get(row, {}).get(who, [])
        return [figures[name] for figures in rounds if name in figures]

    def middle(self, row: str, who: str, name: str) -> float | None:
        values = self.values(row, who, name)
        return median(values) if values else None


def shown(value: float) -> str:
    """Three digits that matter, and thousands apart."""
    if value >= 1_000_000:
        return f"{value / 1e6:.2f} M"
    if value >= 1_000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values: list[float]) -> str:
    """The median, and the least and largest beside it."""
    if not values:
        return "not measured"
    if len(values) == 1:
        return shown(values[0])
    bounds = f"{shown(min(values))} to {shown(max(values))}"
    return f"{shown(median(values))} ({bounds}; {len(values)})"
