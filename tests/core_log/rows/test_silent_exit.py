"""A program that has taken events apart by DuckDB ends without DuckDB's complaints."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc
import pyarrow as pa
from headwater.core_log.rows.json.envelope_splitter import cut_events
{before}
cut_events(pa.array(['{{"op": "c", "after": {{"id": 1}}}}']), has_schemas=False)
{after}
"""


@pytest.mark.parametrize(("before", "after"), [("gc.freeze()", ""), ("", "gc.freeze()")])
def test_a_program_that_read_events_ends_without_a_word(before: str, after: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before, after=after)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
