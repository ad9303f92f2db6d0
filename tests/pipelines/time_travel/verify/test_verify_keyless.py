"""Rows of a table without a key are compared by how often each is there: nothing that somebody took
away, doubled or scribbled on stays unseen."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.pipelines.time_travel.verify.keyed_diff import DifferenceKind
from headwater.pipelines.time_travel.verify.result import ComparedSides, TableVerdict
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

AUDIT = """
pipeline: audit
source: {type: files, path: ./in, format: csv, table: audit}
sink:
  - {type: sql, url: "sqlite:///target.db", commit_every: 0s}
  - {type: files, path: ./out, format: jsonl, commit_every: 0s}
  - {type: spark, path: ./lake, commit_every: 0s}
"""
LINES = "at,what\n1,login\n1,login\n2,logout\n"
EVERYWHERE = ("sql", "files", "spark")
"""Every sink that gives its rows back."""


def problems(verdict: TableVerdict) -> dict[DifferenceKind, int]:
    return {kind: count for kind, count in verdict.compared.counts.items() if count}


def test_changes_by_hand_are_found(tmp_path: Path, headwater: Any) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "audit.csv").write_text(LINES)

    async def story(world: World) -> Any:
        await world.run()
        before = await world.verified(sides=ComparedSides(source=False))
        with closing(sqlite3.connect(tmp_path / "target.db")) as target, target:
            target.execute("DELETE FROM audit WHERE _headwater_offset = 0")
            target.execute("UPDATE audit SET what = 'nothing' WHERE what = 'logout'")
        [lines] = (tmp_path / "out").glob("audit/*.jsonl")
        lines.write_text(lines.read_text() + lines.read_text().splitlines()[0] + "\n")
        return before, await world.verified(sides=ComparedSides(source=False), repairs=True)

    before, after = tell(tmp_path, AUDIT, story)
    ran = headwater("verify", "audit", "--against", "log", "-f", tmp_path / "pipeline.yaml")

    assert {
        side: (each.is_equal, each.compared.rows) for (_, side), each in before.items()
    } == dict.fromkeys(EVERYWHERE, (True, 3))
    assert {side: problems(each) for (_, side), each in after.items()} == {
        "sql": {DifferenceKind.MISSING: 2, DifferenceKind.EXTRA: 1},
        "files": {DifferenceKind.EXTRA: 1},
        "spark": {},
    }
    missing = [each["key"] for each in after["audit", "sql"].named if "missing" in each["problem"]]
    assert [each["partition"] for each in missing] == [0, 0]
    assert ran.code == 4
