"""A record of versions that belong together names no table that was held back from their moment."""

from pathlib import Path

import pytest

from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.loops.assembly import run_task
from headwater.sinks.spark.sink_state import TablesAt, tables_at
from tests.pipelines.task_runs import task_run
from tests.pipelines.time_travel.world import World, tell

ORDERS = TableId("shop", "orders")
PIPELINE = """
pipeline: shop
source: {{type: generator, size: 1000, total: {total}, rate: 0, batch_rows: 200}}
sink: {{type: spark, path: ./lake, consistent_cut: true, commit_every: 0s}}
"""


def newest(directory: Path) -> TablesAt:
    return tables_at(str(directory / "lake"), pipeline="shop")


async def run(world: World, *paused: str) -> None:
    for task in ("source", "spark"):
        await run_task(
            task_run(
                world.loaded,
                task,
                world.log,
                desired=lambda: DesiredTaskState("shop", paused_tables=frozenset(paused)),
                clock=world.clock,
            )
        )


@pytest.mark.slow
def test_a_paused_table_keeps_back_the_cuts_of_all(tmp_path: Path) -> None:
    async def to_its_end(world: World) -> TablesAt:
        await run(world)
        return newest(tmp_path)

    async def paused(world: World) -> TablesAt:
        await run(world, "shop.orders")
        return newest(tmp_path)

    before = tell(tmp_path, PIPELINE.format(total=4000), to_its_end)
    meanwhile = tell(tmp_path, PIPELINE.format(total=8000), paused)
    after = tell(tmp_path, PIPELINE.format(total=9000), to_its_end)

    assert meanwhile == before
    assert after.cut.offset > before.cut.offset
    assert after.versions[ORDERS] == before.versions[ORDERS] + 1
