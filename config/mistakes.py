"""What is wrong with a file, all of it at once, each with its place."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from core_log.errors import ConfigError

MISTAKES_SHOWN_MAX = 100


class Place(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong. The words never hold a value that came from a reference."""

    path: Path
    place: Place | None
    problem: str
    hint: str = ""
    variable: str = ""
    """The name of a variable of the environment, where it is missing."""

    @property
    def where(self) -> str:
        """`file:line:column`, as editors and compilers write it."""
        return ":".join(str(part) for part in (self.path, *(self.place or ())))

    def as_json(self) -> dict[str, object]:
        line, column = self.place or (None, None)
        return {
            "file": str(self.path),
            "line": line,
            "column": column,
            "problem": self.problem,
            "hint": self.hint or None,
        }

    def __str__(self) -> str:
        told = f"{self.where}: {self.problem}"
        return f"{told}\n  hint: {self.hint}" if self.hint else told


class MistakesFound(ConfigError):
    """Every mistake of every file; fixing them one by one is a waste of people."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        shown = self.mistakes[:MISTAKES_SHOWN_MAX]
        lines = [str(mistake) for mistake in shown]
        if more := len(self.mistakes) - len(shown):
            lines.append(f"and {more} more")
        super().__init__("\n".join(lines))
        self.facts = {"mistakes": [each.as_json() for each in shown]}

    def __str__(self) -> str:
        head = "" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes\n"
        return head + self.problem


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A guess at what was meant, or what there is."""
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(sorted(known))}" if known else ""
