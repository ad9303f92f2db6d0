"""A table that lacks what its target could not take is as right as it can be, and is rebuilt."""

from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.foundation.clock import SystemClock
from headwater.pipelines.time_travel.rebuild.rebuild import RebuildOptions, find_rebuilding, rebuild
from tests.pipelines.time_travel.verify.test_verify import execute, rows
from tests.pipelines.time_travel.world import World, tell

PIPELINE = """
pipeline: copy
source: {type: sql, url: "sqlite:///source.db", tables: ["*"], deletes: compare}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s}
transform:
  - {table: t, add: {w: "CASE WHEN id = 2 THEN 'nan'::DOUBLE ELSE 1.5 END"}}
"""
"""SQLite takes NaN for null, so that the sink rejects it."""


@pytest.mark.slow
@pytest.mark.parametrize("key", ["PRIMARY KEY", ""], ids=["with a key", "without a key"])
def test_a_table_with_a_dead_letter_is_rebuilt_compared_and_swapped(
    key: str, tmp_path: Path
) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"

    async def story(world: World) -> Any:
        execute(source, f"CREATE TABLE t (id INTEGER {key}, v DOUBLE)",
                "INSERT INTO t VALUES (1, 1.5), (2, 2.5), (3, 3.5)")  # fmt: skip
        await world.run()
        found = await find_rebuilding(world.loaded, world.log, table="t", sink=None)
        rebuilt = await rebuild(
            found, world.log, RebuildOptions(swaps=True, verifies=True), is_running=False,
            clock=SystemClock(), reporter=lambda _: None,
        )  # fmt: skip
        execute(target, "DELETE FROM t WHERE id = 3")
        return rebuilt, (await world.verified("t"))["t", "sql"]

    rebuilt, damaged = tell(tmp_path, PIPELINE, story)

    assert rebuilt.verdict.is_as_told and len(rebuilt.verdict.dead) == 1
    assert rebuilt.kept and not rebuilt.verdict.is_equal
    assert damaged.compared.differing >= 1, "what is missing for another reason is a difference"
    assert [id for (id,) in rows(target, "SELECT id FROM t")] == [1]
