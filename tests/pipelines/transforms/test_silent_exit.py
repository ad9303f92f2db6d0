"""A program that has used expressions ends without DuckDB's complaints."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import gc
from headwater.pipelines.transforms.expressions import Expressions
{before}
used = Expressions()
used.check("1 + 1")
{after}
"""


@pytest.mark.parametrize(("before", "after"), [("gc.freeze()", ""), ("", "gc.freeze()")])
def test_a_program_that_used_expressions_ends_without_a_word(before: str, after: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before, after=after)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
