"""The output of a command: data on stdout, everything else on stderr, to a person or to a
program."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import format_exception
from typing import Any

import click

from headwater.core_log.foundation.errors import HeadwaterError


@dataclass(slots=True)
class Output:
    """How this run of a command talks; its options fill it in before the command starts.

    With `--json` stdout carries one envelope, or one per line where a command streams:
    `{"ok": true, "data": ..., "error": null}`. An error is an envelope too, so that a script
    needs to read nothing but stdout.
    """

    as_json: bool = False
    is_quiet: bool = False
    verbosity: int = 0
    has_color: bool = True
    scrub: Callable[[str], str] = str
    """Takes secrets out of errors and remarks; a command that has read any sets it."""

    def result(self, data: object, lines: Iterable[str]) -> None:
        """The answer of the command: `data` for programs, `lines` for people."""
        if self.as_json:
            self.write(envelope(data))
            return
        for line in lines:
            self.write(line)

    def write(self, line: str) -> None:
        """One line of data, as it is."""
        click.echo(line, color=None if self.has_color else False)

    def write_error(self, line: str) -> None:
        """The envelope of an error; where stdout is what fails, stderr says so alone."""
        try:
            self.write(line)
        except OSError:
            close_stdout_quietly()

    def note(self, text: str) -> None:
        """Something a person may want to know; no data."""
        if not self.is_quiet:
            self._write_remark(text)

    def error(self, text: str) -> None:
        """Something that went wrong, after which the command goes on; quiet commands say it too."""
        self._write_remark(text)

    def detail(self, text: str) -> None:
        """Writes a line that `-v` asks for."""
        if self.verbosity:
            self._write_remark(text)

    def failure(self, error: HeadwaterError, exit_code: int) -> None:
        """Says what is so, where, and what to do."""
        if self.as_json:
            data = error.data if isinstance(error, DifferencesFound) else None
            self.write_error(envelope(data, error=self.redact(error_facts(error, exit_code))))
        elif isinstance(error, DifferencesFound):
            for line in error.lines:
                self.write(line)
        word = self.style("error:", fg="red", bold=True)
        self._write_remark(f"{word} {error}")

    def redact(self, content: Any) -> Any:
        """The same without secrets in any of its texts."""
        if isinstance(content, dict):
            return {key: self.redact(value) for key, value in content.items()}
        if isinstance(content, list | tuple):
            return [self.redact(value) for value in content]
        is_word = content is None or isinstance(content, bool | int | float)
        return content if is_word else self.scrub(str(content))

    def style(self, text: str, *, fg: str, bold: bool = False) -> str:
        return click.style(text, fg=fg, bold=bold) if self.has_color else text

    def _write_remark(self, text: str) -> None:
        click.echo(self.scrub(text), err=True, color=None if self.has_color else False)


class DifferencesFound(HeadwaterError):
    """The command did its work and has its answer: what it compared is not equal."""

    def __init__(self, problem: str, *, data: object, lines: Sequence[str], hint: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.data, self.lines = data, lines


class DependencyMissing(DifferencesFound):
    """The command has its answer, and part of it is that something cannot be reached."""


def envelope(data: object, *, error: object = None) -> str:
    """The one shape of everything a program reads from us."""
    content = {"ok": error is None, "data": data, "error": error}
    return json.dumps(content, ensure_ascii=False, default=str)


def error_facts(error: HeadwaterError, exit_code: int) -> dict[str, object]:
    return {
        "kind": type(error).__name__,
        "problem": error.problem,
        "hint": error.hint or None,
        "facts": error.facts,
        "exit_code": exit_code,
    }


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Aligned columns, numbers to the right; nothing is cut, since data may be piped."""
    cells = [[_cell(value) for value in row] for row in rows]
    is_number = [bool(cells) and all(_is_number(row[at]) for row in cells) for at in _span(head)]
    widths = [max(len(row[at]) for row in [list(head), *cells]) for at in _span(head)]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in [list(head), *cells]
    ]


def _span(head: Sequence[str]) -> range:
    return range(len(head))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.lstrip("-").replace(",", "").isdigit()


def format_count(count: int, noun: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(text: str) -> str:
    """Foreign text on one line and harmless to a terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def default_color() -> bool:
    """https://no-color.org: present and not empty means no colour."""
    return not os.environ.get("NO_COLOR")


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declares the four options that every command has; they end in the run's `Output`."""
    for name, keyword, explanation in (
        (("--no-color",), "has_color", "Never colour the output; NO_COLOR does the same."),
        (("-v", "--verbose"), "verbosity", "More messages on stderr; twice for debugging."),
        (("-q", "--quiet"), "is_quiet", "Only errors on stderr."),
        (("--json",), "as_json", "Write one JSON envelope to stdout: ok, data, error."),
    ):
        command = click.option(
            *name,
            is_flag=keyword != "verbosity",
            count=keyword == "verbosity",
            expose_value=False,
            callback=_filling(keyword),
            help=explanation,
        )(command)
    return command


def _filling(keyword: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def fill(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            output = ctx.find_object(Output)
            assert output is not None, "the root command makes the Output of a run"
            setattr(output, keyword, False if keyword == "has_color" else value)

    return fill


def close_stdout_quietly() -> None:
    """After our reader has left, so that nothing more is said about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


PROGRESS = "headwater.progress"
"""Where sinks log how far their long work is."""


class Remarks(logging.Handler):
    """Errors, with the traceback of a crash, and warnings unless quiet; the rest as `-v` and `-vv`
    ask for it."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            is_error = record.levelno >= logging.ERROR
            say = self._output.error if is_error else self._output.note
            say(f"{record.levelname.lower()}: {record.getMessage()}")
            if record.exc_info and record.exc_info[0] is not None:
                say("".join(format_exception(*record.exc_info)).rstrip())
        elif record.name == PROGRESS:
            self._output.note(record.getMessage())
        else:
            self._output.detail(f"{record.name}: {record.getMessage()}")


@contextmanager
def remarks_from_logs(output: Output) -> Iterator[None]:
    """Leaves logging as it was, since a command may run inside another program."""
    root, remarks = logging.getLogger(), Remarks(output)
    level = root.level
    root.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(output.verbosity, 2)])
    root.addHandler(remarks)
    logging.getLogger(PROGRESS).setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(remarks)
        root.setLevel(level)
        logging.getLogger(PROGRESS).setLevel(logging.NOTSET)
