"""What is wrong with a file, all of it at once, each with its place."""

import json
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from headwater.config.mistake_codes import Code
from headwater.core_log.foundation.errors import ConfigError

MISTAKES_SHOWN_MAX = 100


KeyPath = tuple[str | int, ...]
"""Of mappings and lists, from the root of a file."""


class TextPosition(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong. The words never hold a value that came from a reference."""

    path: Path
    place: TextPosition | None
    problem: str
    hint: str = ""
    variable: str = ""
    """The name of a variable of the environment, where it is missing."""
    _: KW_ONLY
    code: Code
    keys: KeyPath = ()
    """What leads to the key or the value that it is about."""
    excerpt: tuple[str, int] | None = None
    """The line without what may be secret, and where a caret stands below it."""

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
            "code": self.code.code,
            "key": path_text(self.keys) or None,
            "problem": self.problem,
            "hint": self.hint or None,
        }

    def __str__(self) -> str:
        at = " ".join(filter(None, (self.code.code, path_text(self.keys))))
        lines = [f"{self.where}: {self.problem} [{at}]"]
        if self.excerpt is not None and self.place is not None:
            line, caret = self.excerpt
            number = str(self.place.line)
            lines.append(f"  {number} | {line}")
            lines.append(f"  {' ' * len(number)} | {' ' * caret}^")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


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


def path_text(keys: KeyPath) -> str:
    """`sink[0].tables."*".mode`."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
            continue
        word = key if re.fullmatch(r"[A-Za-z_][\w-]*", key) else json.dumps(key, ensure_ascii=False)
        text += f".{word}" if text else word
    return text


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A guess at what was meant, or what there is."""
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(sorted(known))}" if known else ""
