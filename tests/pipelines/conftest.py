"""The command line as a script sees it, words in, data, remarks and an exit code out; and files of
made-up parts for it."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner

from headwater.connectors import SOURCES
from headwater.pipelines.cli import cli
from headwater.sinks import SINKS
from tests.pipelines import fake_components
from tests.pipelines.pipeline_files import Write


@dataclass
class Ran:
    """One run of a command."""

    code: int
    data: str
    remarks: str

    @property
    def envelope(self) -> dict[str, Any]:
        """The one envelope on stdout."""
        found: dict[str, Any] = json.loads(self.data)
        return found


Headwater = Callable[..., Ran]


def run_command(*arguments: object, stdin: IO[bytes] | None = None) -> Ran:
    """Runs a command in this process."""
    with process_as_it_was():
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def headwater() -> Headwater:
    return run_command


@contextmanager
def process_as_it_was() -> Iterator[None]:
    """Commands that serve set up the log lines and the turns of a process that is theirs alone."""
    lines, turn_s = logging.getLogger(), sys.getswitchinterval()
    level, handlers = lines.level, lines.handlers[:]
    try:
        yield
    finally:
        lines.setLevel(level)
        lines.handlers[:] = handlers
        sys.setswitchinterval(turn_s)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a pipeline file, whose parts may be made-up ones."""
    monkeypatch.setitem(SOURCES, "made-up", fake_components.SOURCE)
    monkeypatch.setitem(SINKS, "made-up", fake_components.SINK)

    def write_file(text: str, name: str = "pipeline.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write_file


@pytest.fixture
def runs() -> "Iterator[list[subprocess.Popen[str]]]":
    """Everything in here is gone after the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()
