"""A copy that was begun by other rules than those of now is begun anew, and never goes live."""

import os
from pathlib import Path
from typing import Any

import pytest

from core_log.clock import SystemClock
from pipelines.file.loading import LoadedPipeline, load
from pipelines.proving.rebuild import Rebuilt, Wanted, find_rebuilding, rebuild
from tests.pipelines.proving_world import World, tell
from tests.pipelines.test_verify import execute

SINKS = {
    "sql": '{type: sql, url: "sqlite:///target.db", commit_every: 0s}',
    "spark": "{type: spark, path: lake, commit_every: 0s}",
    "iceberg": "{type: spark, path: lake, format: iceberg, commit_every: 0s}",
}
PIPELINE = """
pipeline: copy
source: {type: sql, url: "sqlite:///source.db", tables: ["*"], deletes: compare}
transform: [{table: t, filter: "id <> 1"}]
"""


@pytest.mark.parametrize("kind", SINKS)
def test_a_copy_that_was_filled_by_another_filter_is_begun_anew(kind: str, tmp_path: Path) -> None:
    pipeline = f"{PIPELINE}sink: {SINKS[kind]}\n"

    async def story(world: World) -> Any:
        execute(
            tmp_path / "source.db",
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
        )
        await world.run()
        first = await rebuilt(world, world.loaded, swaps=False)
        again = await rebuilt(world, world.loaded, swaps=False)
        (tmp_path / "pipeline.yaml").write_text(pipeline.replace("id <> 1", "id > 2"))
        [later] = load(tmp_path / "pipeline.yaml", environment=os.environ)
        world.loaded = later
        anew = await rebuilt(world, later, swaps=True)
        await world.run()
        return first, again, anew, await world.verified("t")

    first, again, anew, after = tell(tmp_path, pipeline, story)

    assert first.rows and not again.rows, "by the same rules it goes on"
    assert anew.rows == first.rows and anew.verdict.compared.rows == 2
    assert anew.verdict.is_equal and all(each.is_equal for each in after.values())


async def rebuilt(world: World, loaded: LoadedPipeline, *, swaps: bool) -> Rebuilt:
    return await rebuild(
        await find_rebuilding(loaded, world.log, table="t", sink=None),
        world.log,
        Wanted(swaps=swaps, verifies=swaps),
        is_running=False,
        clock=SystemClock(),
        tell=lambda _: None,
    )
