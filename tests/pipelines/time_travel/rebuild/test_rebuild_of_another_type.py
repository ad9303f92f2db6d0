"""A table that a changed type has stopped goes on after the rebuild that it asks for."""

from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.foundation.clock import SystemClock
from headwater.pipelines.time_travel.rebuild.rebuild import RebuildOptions, find_rebuilding, rebuild
from tests.pipelines.time_travel.verify.test_verify import execute
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

SINKS = {
    "sql": '{type: sql, url: "sqlite:///target.db", commit_every: 0s}',
    "spark": "{type: spark, path: lake, slice_rows: 1, commit_every: 0s}",
}
PIPELINE = """
pipeline: copy
source: {type: sql, url: "sqlite:///source.db", tables: ["*"], deletes: compare}
errors: {retry: {for: 0s}}
"""


@pytest.mark.parametrize("kind", SINKS)
def test_the_rebuild_that_a_changed_type_asks_for_is_equal(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "source.db"

    async def story(world: World) -> Any:
        execute(
            source,
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            "INSERT INTO t VALUES (1, '10'), (2, '20'), (3, '30')",
        )
        await world.run()
        execute(
            source,
            "DROP TABLE t",
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)",
            "INSERT INTO t VALUES (1, 10), (2, 20), (5, 7)",
        )
        await world.run("source")
        found = await find_rebuilding(world.loaded, world.log, table="t", sink=None)
        rebuilt = await rebuild(
            found, world.log, RebuildOptions(swaps=True, verifies=True), is_running=False,
            clock=SystemClock(), reporter=lambda _: None,
        )  # fmt: skip
        await world.run()
        return rebuilt.verdict, await world.verified("t")

    verdict, after = tell(tmp_path, f"{PIPELINE}sink: {SINKS[kind]}\n", story)

    assert verdict.is_equal and verdict.compared.rows == 3
    assert all(each.is_equal for each in after.values())
