"""What a process of `pytest -n` says of a failure reaches the others, whatever it quotes, and
the last lines name what failed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import sendable


def test_text_that_is_no_unicode_is_told_in_escapes() -> None:
    told = sendable({"why": ["'\ud800' is not 'a'", ("\udcff", 1, None)], "passed": "é"})

    assert told == {"why": ["'\\ud800' is not 'a'", ("\\udcff", 1, None)], "passed": "é"}


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "1"])
def test_the_last_lines_name_what_failed(tmp_path: Path, processes: str) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_sessionfinish\n")
    (tmp_path / "test_it.py").write_text("def test_one():\n    assert 'x' * 9_000 == 'y' * 9_000\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "-p", "no:cacheprovider"]
    # Else it is a directory that this one and the project have in common.
    command += ["--rootdir", str(tmp_path)]

    ended = subprocess.run(
        [*command, str(tmp_path)],
        capture_output=True,
        text=True,
        env={"CI": "1", "PYTHONPATH": "."},
    )

    assert ended.returncode == 1
    assert ended.stdout.splitlines()[-1] == "failed: test_it.py::test_one"
