"""Mistakes of a file, all of them at once, each with a code that stays: `docs/error-codes.md`."""

import json
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from headwater.core_log.foundation.errors import ConfigError

MISTAKES_SHOWN_MAX = 100

KeyPath = tuple[str | int, ...]
"""Keys of mappings and indexes of lists, from the root of a file."""


class Code(Enum):
    """A code, what is so, and what to do. A code is never given to something else."""

    UNREADABLE = (
        "HW101",
        "The file cannot be read, is empty, is larger than 1 MiB, or is not UTF-8.",
        "Name a text file that this user may read; `headwater init` writes one.",
    )
    NO_YAML = (
        "HW102",
        "The file is not YAML.",
        "Mend the indentation or the quotes at the place that is named.",
    )
    UNUSED_YAML = (
        "HW103",
        "The file is YAML that is refused: a key that occurs twice, a tag, a merge key, several "
        "documents, or far too much.",
        "Write each key out, once.",
    )
    UNKNOWN_KEY = (
        "HW201",
        "The key is unknown.",
        "Correct its name or its indentation; `headwater explain TYPE` lists the keys.",
    )
    MISSING_KEY = ("HW202", "A key that is needed is missing.", "Add it.")
    WRONG_KIND = (
        "HW203",
        "The value is of another kind, such as text where a number is wanted.",
        "Write a value of the kind that the mistake names.",
    )
    WRONG_VALUE = (
        "HW204",
        "The value is of the right kind, and none that is taken here.",
        "Write one that the mistake names.",
    )
    UNKNOWN_TYPE = (
        "HW205",
        "The type of a source or sink is unknown, or its package is not installed.",
        "Correct `type`, or install the package; `headwater explain` lists the types.",
    )
    DEBEZIUM_OPTION = (
        "HW206",
        "An option of Debezium's has no counterpart here, or another place.",
        "Do what the hint says, or look it up in [Debezium's options](debezium-options.md).",
    )
    BAD_REFERENCE = (
        "HW301",
        "A reference means nothing.",
        "Write `${env:NAME}`, `${env:NAME:-default}` or `${file:path}`; `$${` stands for `${`.",
    )
    UNSET_VARIABLE = (
        "HW302",
        "The environment has no variable of this name.",
        "Export it, or give a default: `${env:NAME:-default}`.",
    )
    UNREADABLE_SECRET = (
        "HW303",
        "A file that is referred to cannot be read.",
        "Make it, or correct its path, which is relative to the pipeline file.",
    )
    CONTRADICTION = (
        "HW401",
        "Keys that are each right contradict each other, or need one another.",
        "Change one of them, as the hint says.",
    )
    BAD_EXPRESSION = (
        "HW402",
        "An SQL expression or a Python function of `transform` cannot be used.",
        "Correct the expression, or the name of the function.",
    )
    NEIGHBOURS = (
        "HW403",
        "Pipelines of one directory cannot run together.",
        "Give each its own name, and all of them one log.",
    )
    REMARK = (
        "HW501",
        "The value is allowed and seldom meant: a remark, with which a pipeline runs.",
        "Do what the hint says, or leave it.",
    )

    def __init__(self, code: str, meaning: str, hint: str) -> None:
        self.code, self.meaning, self.hint = code, meaning, hint


class TextPosition(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong. The words never hold a value that came from a reference."""

    path: Path
    text_position: TextPosition | None
    problem: str
    hint: str = ""
    variable: str = ""
    """The name of a variable of the environment, where it is missing."""
    _: KW_ONLY
    code: Code
    keys: KeyPath = ()
    """The path of the key or the value that it is about."""
    excerpt: tuple[str, int] | None = None
    """The line without what may be secret, and where a caret stands below it."""

    @property
    def where(self) -> str:
        """`file:line:column`, as editors and compilers write it."""
        return ":".join(str(part) for part in (self.path, *(self.text_position or ())))

    def as_json(self) -> dict[str, object]:
        line, column = self.text_position or (None, None)
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
        if self.excerpt is not None and self.text_position is not None:
            line, caret = self.excerpt
            number = str(self.text_position.line)
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
