"""`verify` compares the deleted rows that a target keeps, their last values and when they went."""

from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.foundation.settings import TopicSettings
from headwater.pipelines.loops.assembly import topic_config
from headwater.pipelines.time_travel.rebuild.rebuild import RebuildOptions, find_rebuilding, rebuild
from headwater.pipelines.time_travel.verify.keyed_diff import DifferenceKind
from headwater.pipelines.time_travel.verify.result import ComparedSides, TableVerdict
from tests.pipelines.loops.deliver.test_compacted_while_read import SMALL, TOPIC
from tests.pipelines.time_travel.verify.test_verify import POLLED, execute, named, problems, rows
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

SOFT = POLLED.replace("commit_every: 0s", "commit_every: 0s, deletes: soft")
IGNORED = POLLED.replace("commit_every: 0s", "commit_every: 0s, deletes: ignore")
TARGET = "SELECT id, v, _headwater_deleted_at FROM t ORDER BY id"


async def filled(world: World, directory: Path) -> None:
    """Rows 1, 3 and 4 are gone, row 3 with another value than it came with, row 4 is back."""
    source = directory / "source.db"
    execute(
        source,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
    )
    await world.run("source")
    execute(source, "DELETE FROM t WHERE id IN (1, 4)", "UPDATE t SET v = 'cc' WHERE id = 3")
    await world.run("source")
    execute(source, "DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (4, 'dd')")
    await world.run()


def verified(directory: Path, pipeline: str, *damage: str, repairs: bool = False) -> TableVerdict:
    async def story(world: World) -> Any:
        await filled(world, directory)
        execute(directory / "target.db", *damage)
        return (await world.verified("t", sides=ComparedSides(source=False), repairs=repairs))[
            "t", "sql"
        ]

    found: TableVerdict = tell(directory, pipeline, story)
    return found


@pytest.mark.parametrize("pipeline", [SOFT, IGNORED], ids=["soft", "ignore"])
def test_deleted_rows_that_are_as_they_last_were_are_equal(pipeline: str, tmp_path: Path) -> None:
    verdict = verified(tmp_path, pipeline)

    assert verdict.is_equal
    assert (verdict.compared.log_rows, verdict.compared.rows) == (4, 4)


DAMAGE = {
    "missing": ("DELETE FROM t WHERE id = 3", DifferenceKind.MISSING),
    "other values": ("UPDATE t SET v = 'c' WHERE id = 3", DifferenceKind.CHANGED),
    "another time": (
        "UPDATE t SET _headwater_deleted_at = '2001-01-01 00:00:00.000000' WHERE id = 3",
        DifferenceKind.CHANGED,
    ),
    "not deleted": (
        "UPDATE t SET _headwater_deleted_at = NULL WHERE id = 3",
        DifferenceKind.CHANGED,
    ),
}


@pytest.mark.parametrize(("damage", "kind"), DAMAGE.values(), ids=DAMAGE)
def test_a_deleted_row_that_differs_is_named_and_mended(
    damage: str, kind: DifferenceKind, tmp_path: Path
) -> None:
    async def story(world: World) -> Any:
        await filled(world, tmp_path)
        whole = rows(tmp_path / "target.db", TARGET)
        execute(tmp_path / "target.db", damage)
        differing = await world.verified("t", sides=ComparedSides(source=False))
        mended = await world.verified("t", sides=ComparedSides(source=False), repairs=True)
        return whole, differing["t", "sql"], mended["t", "sql"]

    whole, differing, mended = tell(tmp_path, SOFT, story)

    assert problems(differing) == {kind: 1} and named(differing) == [(3, kind.value)]
    assert mended.is_equal and mended.repaired == 1
    assert rows(tmp_path / "target.db", TARGET) == whole


def test_last_values_of_rows_whose_deletes_are_ignored_are_compared(tmp_path: Path) -> None:
    verdict = verified(tmp_path, IGNORED, "UPDATE t SET v = 'c' WHERE id = 3")

    assert problems(verdict) == {DifferenceKind.CHANGED: 1}


@pytest.mark.parametrize("pipeline", [SOFT, IGNORED], ids=["soft", "ignore"])
def test_a_deleted_row_that_never_was_is_no_deleted_row(pipeline: str, tmp_path: Path) -> None:
    """Where the log is whole: else compaction may have taken what it told of the row."""
    is_soft = pipeline == SOFT
    row = "(9, 'x', '2001-01-01 00:00:00.000000')" if is_soft else "(9, 'x')"

    verdict = verified(tmp_path, pipeline, f"INSERT INTO t VALUES {row}", repairs=True)

    assert problems(verdict) == {DifferenceKind.EXTRA: 1} and verdict.repaired == 0


GENERATED = """
pipeline: copy
source:
  {type: generator, mode: wide, size: 1000, total: 5000, rate: 0, updates: 0.5, deletes: 0.2,
    batch_rows: 100, batch_wait: 0ms}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s, DELETES}
"""


@pytest.mark.slow
@pytest.mark.parametrize("deletes", ["soft", "ignore"])
def test_a_table_is_equal_after_compaction_and_its_rebuild_keeps_all_its_deleted_rows(
    deletes: str, tmp_path: Path
) -> None:
    """What the log tells of most of them is at most the delete."""
    question = "SELECT * FROM wide ORDER BY id"

    async def story(world: World) -> Any:
        config = topic_config(world.loaded.spec.log) | SMALL
        await world.log.ensure_topic(TopicSettings(name=TOPIC, config=config))
        await world.run()
        before = rows(tmp_path / "target.db", question)
        await world.log.topics.alter(TOPIC, set_to={"min.compaction.lag.ms": "0"})
        running = world.log.running
        await running.housekeeping.cleaner.clean_what_is_due(running.broker.clock.now_ms())
        verdict = (await world.verified("wide", sides=ComparedSides(source=False)))[
            "shop.wide", "sql"
        ]
        rebuilding = await find_rebuilding(world.loaded, world.log, table="wide", sink=None)
        await rebuild(
            rebuilding,
            world.log,
            RebuildOptions(swaps=True, verifies=True),
            is_running=False,
            clock=world.clock,
            reporter=lambda _: None,
        )
        again = (await world.verified("wide", sides=ComparedSides(source=False)))[
            "shop.wide", "sql"
        ]
        return before, verdict, again

    pipeline = GENERATED.replace("DELETES", f"deletes: {deletes}")
    before, verdict, again = tell(tmp_path, pipeline, story)

    assert verdict.compared.log_rows < len(before) - 100, "compaction has taken many"
    assert verdict.is_equal and again.is_equal
    assert rows(tmp_path / "target.db", question) == before
