"""What is said of a file that is no YAML: where, what usually causes it, and a harmless line."""

import re
from pathlib import Path
from typing import Any

import yaml

from headwater.config.mistake_codes import Code
from headwater.config.mistakes import Mistake, TextPosition
from headwater.config.redaction import MASK

LOOKED_AT_MAX = 1_000
"""How much of a line is looked at for the cause of a mistake."""


def fault_of(error: yaml.YAMLError, text: str, path: Path) -> Mistake:
    """The parser's words, which never quote the file, and what usually causes them."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        position = getattr(error, "position", -1)
        problem = "a control character cannot stand in YAML"
        return Mistake(path, _place_at(text, position), problem, code=Code.NO_YAML)
    problem = str(getattr(error, "problem", None) or "this is no YAML")
    begin = _line_start(text, mark.line)
    line = text[begin : begin + LOOKED_AT_MAX].partition("\n")[0]
    return Mistake(
        path,
        place_of(mark),
        problem[:1].lower() + problem[1:],
        _usual_cause(line[mark.column :], line, problem),
        code=Code.NO_YAML,
        excerpt=bare_line(text, place_of(mark)),
    )


def bare_line(text: str, place: TextPosition) -> tuple[str, int]:
    """Of a file that is no tree yet: only the key that a line begins with is surely no secret."""
    begin = _line_start(text, place.line - 1)
    line = text[begin : begin + LOOKED_AT_MAX].partition("\n")[0].rstrip()
    head = re.match(r"[ \t]*(?:- +)*(?:[A-Za-z_][\w.-]*:(?= |$))?", line)[0]  # type: ignore[index]
    shown = head if head == line else f"{head} {MASK}" if head.strip() else f"{head}{MASK}"
    caret = place.column - 1 if place.column <= len(head) else len(shown) - len(MASK)
    return shown.replace("\t", " "), max(caret, 0)


def _line_start(text: str, line: int) -> int:
    position = 0
    for _ in range(line):
        position = text.find("\n", position) + 1
    return position


def _place_at(text: str, position: int) -> TextPosition | None:
    if not 0 <= position <= len(text):
        return None
    return TextPosition(text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position))


def _usual_cause(rest: str, line: str, problem: str) -> str:
    if "\t" in re.match(r"\s*", line)[0] or rest.startswith("\t"):  # type: ignore[index]
        return "indent with spaces, a tab cannot"
    if re.match(r"[@`%]", rest):
        return f"put text that begins with {rest[0]} between quotes"
    if re.search(r"[\[,:-]\s*\*", line) and ("alias" in problem or "alphabetic" in problem):
        return "put text that begins with * between quotes"
    if re.search(r"[\[,:-]\s*!", line) and ("tag" in problem or "whitespace" in problem):
        return "put text that begins with ! between quotes"
    if re.search(r":\s*\{", line) and "expected key" in problem:
        return "put text that begins with { between quotes"
    if "mapping values are not allowed" in problem:
        return "put text that holds a colon and a space between quotes, or check the indentation"
    return ""


def place_of(mark: Any) -> TextPosition:
    return TextPosition(mark.line + 1, mark.column + 1)
