"""A copy that was begun by other rules than those of now, or of another state of the log, is begun
anew, and never goes live."""

import asyncio
import os
import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import SinkUnavailable
from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.time_travel.rebuild import rebuild as rebuilding_module
from headwater.pipelines.time_travel.rebuild.rebuild import (
    RebuildOptions,
    RebuildResult,
    find_rebuilding,
    rebuild,
)
from tests.pipelines.time_travel.verify.test_verify import execute
from tests.pipelines.time_travel.world import World, tell

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_second_rebuild_is_refused_while_the_first_runs_and_not_after_it_broke_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the second, by other rules, would take the first one's copy away."""
    pipeline = f"{PIPELINE}sink: {SINKS['sql']}\n"
    fill = rebuilding_module._fill

    async def story(world: World) -> Any:
        execute(
            tmp_path / "source.db",
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        )
        await world.run()
        filled = asyncio.Event()

        async def fill_and_hang(*given: Any, **named: Any) -> None:
            await fill(*given, **named)
            filled.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(rebuilding_module, "_fill", fill_and_hang)
        first = asyncio.create_task(rebuilt(world, world.loaded, swaps=False))
        await filled.wait()
        monkeypatch.setattr(rebuilding_module, "_fill", fill)
        (tmp_path / "pipeline.yaml").write_text(pipeline.replace("id <> 1", "id > 0"))
        [later] = load(tmp_path / "pipeline.yaml", environment=os.environ)
        with pytest.raises(SinkUnavailable, match="another rebuild of this table") as refused:
            await rebuilt(world, later, swaps=True)
        first.cancel()
        await asyncio.wait([first])
        by_the_same = await rebuilt(world, world.loaded, swaps=False)
        return refused.value, by_the_same, await rebuilt(world, later, swaps=True)

    refused, by_the_same, anew = tell(tmp_path, pipeline, story)

    assert "process id" in refused.hint
    assert not by_the_same.rows, "it takes over what the first has left"
    assert anew.kept and anew.verdict.compared.rows == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", SINKS)
def test_a_copy_of_a_later_state_of_the_log_is_begun_anew(kind: str, tmp_path: Path) -> None:
    """The log was restored from an older copy of its directory."""
    pipeline = f"{PIPELINE}sink: {SINKS[kind]}\n"
    data, kept = tmp_path / "data", tmp_path / "kept"
    execute(
        tmp_path / "source.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
        "INSERT INTO t VALUES (2, 'b')",
    )

    async def first(world: World) -> None:
        await world.run()

    async def copied(world: World) -> RebuildResult:
        execute(tmp_path / "source.db", "INSERT INTO t VALUES (3, 'lost'), (4, 'd')")
        await world.run()
        return await rebuilt(world, world.loaded, swaps=False)

    async def swapped(world: World) -> Any:
        execute(tmp_path / "source.db", "DELETE FROM t WHERE id = 3", "UPDATE t SET v = 'new'")
        await world.run("source")
        return await rebuilt(world, world.loaded, swaps=True), await world.verified("t")

    tell(tmp_path, pipeline, first)
    shutil.copytree(data, kept)
    copy = tell(tmp_path, pipeline, copied)
    shutil.rmtree(data)
    kept.rename(data)
    time.sleep(2)  # a start's epoch is its second, or one more after a start within the same
    anew, after = tell(tmp_path, pipeline, swapped)

    assert copy.rows
    assert anew.kept and anew.verdict.is_equal and anew.verdict.compared.rows == 2
    assert after and all(each.is_equal for each in after.values())


@pytest.mark.slow
def test_a_copy_that_slept_beyond_the_deletes_of_the_log_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = f"{PIPELINE}sink: {SINKS['sql']}\n"
    really = EmbeddedLog.bounds

    async def after_compaction(
        log: EmbeddedLog, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Bounds]:
        found = await really(log, partitions)
        return {
            part: replace(each, deletes_dropped_to=each.end - 1) for part, each in found.items()
        }

    async def story(world: World) -> Any:
        execute(
            tmp_path / "source.db",
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            "INSERT INTO t VALUES (2, 'b'), (3, 'c')",
        )
        await world.run()
        await rebuilt(world, world.loaded, swaps=False)
        execute(tmp_path / "source.db", "DELETE FROM t WHERE id = 3")
        await world.run()
        monkeypatch.setattr(EmbeddedLog, "bounds", after_compaction)
        return await rebuilt(world, world.loaded, swaps=True), await world.verified("t")

    anew, after = tell(tmp_path, pipeline, story)

    assert anew.kept and anew.rows and anew.verdict.compared.rows == 1
    assert all(each.is_equal for each in after.values())


async def rebuilt(world: World, loaded: LoadedPipeline, *, swaps: bool) -> RebuildResult:
    return await rebuild(
        await find_rebuilding(loaded, world.log, table="t", sink=None),
        world.log,
        RebuildOptions(swaps=swaps, verifies=swaps),
        is_running=False,
        clock=SystemClock(),
        reporter=lambda _: None,
    )
