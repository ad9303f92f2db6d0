"""Somebody deletes a topic, or the whole log: filled anew, a rebuild brings its tables back."""

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import sleep, time
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import PositionLost
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.loops.assembly import run_task
from headwater.pipelines.loops.deliver.quarantine import error_text
from headwater.pipelines.time_travel.rebuild.rebuild import (
    RebuildOptions,
    RebuildResult,
    find_rebuilding,
    rebuild,
)
from tests.pipelines.task_runs import task_run
from tests.pipelines.test_failed_tables import TABLES, make_tables, pipeline
from tests.pipelines.time_travel.verify.test_verify import execute
from tests.pipelines.time_travel.world import World, tell
from tests.served_log import ServedLog, served_log
from tests.slices import COMMITTED_US, changes_of, schema_of

TOPIC = "shop.public.orders"
SCHEMA = schema_of(id=pa.int64(), note=pa.string())
PIPELINE = """
pipeline: shop
source: {{type: generator}}
sink: {{type: sql, url: "sqlite:///target.db", commit_every: 0s}}
log: {{type: kafka, bootstrap: "{bootstrap}", history: 1h}}
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLog]:
    with served_log(tmp_path / "log") as served:
        yield served


def write(served: ServedLog, *stretches: range, note: str) -> None:
    """A transaction for each."""
    written: list[list[Any]] = []
    for keys in stretches:
        changes: Any = [("c", {"id": key, "note": note}) for key in keys]
        written.append([changes_of(SCHEMA, *changes, committed_us=COMMITTED_US)])
    served.write(*written)


def loaded_in(directory: Path, served: ServedLog) -> LoadedPipeline:
    path = directory / "pipeline.yaml"
    path.write_text(PIPELINE.format(bootstrap=",".join(served.log.bootstrap)))
    [loaded] = load(path, environment=os.environ)
    return loaded


async def delivered(loaded: LoadedPipeline, served: ServedLog) -> None:
    log = KafkaLog(KafkaSettings(bootstrap=list(served.log.bootstrap)))
    try:
        await run_task(task_run(loaded, "sql", log))
    finally:
        await log.close()


async def rebuilt(loaded: LoadedPipeline, served: ServedLog) -> RebuildResult:
    log = KafkaLog(KafkaSettings(bootstrap=list(served.log.bootstrap)))
    try:
        return await rebuild(
            await find_rebuilding(loaded, log, table="public.orders", sink=None),
            log,
            RebuildOptions(swaps=True, verifies=True),
            is_running=False,
            clock=SystemClock(),
            reporter=lambda _: None,
        )
    finally:
        await log.close()


def notes(directory: Path) -> dict[int, str]:
    with closing(sqlite3.connect(directory / "target.db")) as database:
        return dict(database.execute("SELECT id, note FROM orders"))


@pytest.mark.slow
@pytest.mark.parametrize("keys", [40, 300], ids=["shorter", "longer"])
async def test_a_table_whose_topic_was_made_anew_comes_back_by_a_rebuild(
    tmp_path: Path, served: ServedLog, keys: int
) -> None:
    write(served, range(50), range(50, 100), note="of the first topic")
    loaded = loaded_in(tmp_path, served)
    await delivered(loaded, served)
    served.run(lambda: served.log.topics.delete(TOPIC))
    write(served, range(keys), note="of the second topic")

    with pytest.raises(PositionLost) as stopped:
        await delivered(loaded, served)
    result = await rebuilt(loaded, served)
    write(served, range(keys, keys + 10), note="of the second topic")
    await delivered(loaded, served)

    assert stopped.value.hint.startswith("headwater rebuild")
    assert result.verdict is not None
    assert result.verdict.is_equal
    assert notes(tmp_path) == dict.fromkeys(range(keys + 10), "of the second topic")


@pytest.mark.slow
@pytest.mark.parametrize("backup", ["deleted", "older", "grown past the target"])
@pytest.mark.parametrize("kind", ["sql", "spark"])
def test_a_target_whose_log_was_lost_comes_back_by_a_rebuild_of_each_table(
    kind: str, backup: str, tmp_path: Path, headwater: Any
) -> None:
    make_tables(tmp_path / "source.db")
    tell(tmp_path, pipeline(kind), World.run)
    if backup != "deleted":
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        update = [f"UPDATE {table} SET v = 'later' WHERE id = 2" for table in TABLES]
        execute(tmp_path / "source.db", *update)
        tell(tmp_path, pipeline(kind), World.run)
    shutil.rmtree(tmp_path / "data")
    if backup != "deleted":
        (tmp_path / "backup").rename(tmp_path / "data")
        begun_s = int(time())
        while int(time()) == begun_s:  # leader epochs are seconds
            sleep(0.01)

    if backup == "grown past the target":
        for note in ("once", "twice", "three times"):
            update = [f"UPDATE {table} SET v = '{note}' WHERE id = 3" for table in TABLES]
            execute(tmp_path / "source.db", *update)
            tell(tmp_path, pipeline(kind), lambda world: world.run("source"))

    async def stopped(world: World) -> str:
        if backup != "older":
            await world.run("source")
        with pytest.raises(PositionLost) as lost:
            await world.run(kind)
        return error_text(lost.value, "copy")

    said = tell(tmp_path, pipeline(kind), stopped)
    for table in TABLES:
        rebuild = ("rebuild", f"copy/{table}", "--sink", kind, "--swap")
        assert headwater(*rebuild, "-f", tmp_path / "pipeline.yaml").code == 0
    execute(tmp_path / "source.db", "UPDATE a SET v = 'new' WHERE id = 1")

    async def after(world: World) -> dict[Any, Any]:
        await world.run()
        return await world.verified()

    found = tell(tmp_path, pipeline(kind), after)

    assert re.search("headwater rebuild copy/[abc] --swap", said)
    assert len(found) == 2 * len(TABLES) and all(each.is_equal for each in found.values())
