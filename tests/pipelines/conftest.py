"""The command line as a script sees it: words in, data, remarks and an exit code out."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import pytest
from click.testing import CliRunner

from pipelines.cli import cli


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


@pytest.fixture
def headwater() -> Headwater:
    """Runs a command in this process."""

    def run(*arguments: object, stdin: IO[bytes] | None = None) -> Ran:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run
