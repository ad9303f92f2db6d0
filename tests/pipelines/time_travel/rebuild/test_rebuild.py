"""A rebuilt table equals its source whatever had become of the live one, which is kept."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.connectors.generator.history import truth
from headwater.connectors.generator.settings import GeneratorSettings
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import ConfigError, SinkRejected
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.file.loaded_parts import sink_elsewhere
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.journal.control import read_desired
from headwater.pipelines.loops.assembly import run_task
from headwater.pipelines.time_travel.history.as_of import parse_as_of
from headwater.pipelines.time_travel.history.cut_points import CutPoint, find_cut_point
from headwater.pipelines.time_travel.rebuild.rebuild import (
    RebuildOptions,
    RebuildResult,
    TableRebuild,
    find_rebuilding,
    rebuild,
    rebuild_elsewhere,
)
from headwater.sinks.files.formats import table as read_files
from scripts.shop_targets import Rows, rows_in_sqlite, rows_of_arrow
from tests.pipelines.task_runs import task_run

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, total: 5000, rate: 0, batch_rows: 500}
sink: {type: sql, url: "sqlite:///shop.db", commit_every: 0s}
route: [{from: shop.orders, to: crm.purchases}]
"""
SETTINGS = GeneratorSettings(size=1000, total=5000, rate=0, batch_rows=500)
SOURCE, TARGET = TableId("shop", "orders"), TableId("crm", "purchases")

Story = Callable[[LoadedPipeline, EmbeddedLog], Coroutine[Any, Any, Any]]


def tell(directory: Path, story: Story) -> Any:
    """The pipeline has been run to its end before."""

    async def run() -> Any:
        (directory / "pipeline.yaml").write_text(PIPELINE)
        [loaded] = load(directory / "pipeline.yaml", environment=os.environ)
        settings = BrokerSettings(data=loaded.log_path, listen="127.0.0.1:0", internal_partitions=1)
        log = await EmbeddedLog.open(settings)
        try:
            await run_to_end(loaded, log)
            return await story(loaded, log)
        finally:
            await log.close()

    return asyncio.run(run())


async def run_to_end(loaded: LoadedPipeline, log: EmbeddedLog) -> None:
    for task in ("source", "sql"):
        await run_task(task_run(loaded, task, log))


async def rebuilt(loaded: LoadedPipeline, log: EmbeddedLog, *, swaps: bool) -> RebuildResult:
    return await rebuilt_as(loaded, log, RebuildOptions(swaps=swaps))


async def rebuilt_as(
    loaded: LoadedPipeline, log: EmbeddedLog, wanted: RebuildOptions
) -> RebuildResult:
    return await rebuild(
        await find_rebuilding(loaded, log, table="purchases", sink=None),
        log,
        wanted,
        is_running=False,
        clock=SystemClock(),
        reporter=lambda _: None,
    )


async def cut_point(loaded: LoadedPipeline, log: EmbeddedLog, text: str) -> CutPoint:
    rebuilding = await find_rebuilding(loaded, log, table="purchases", sink=None)
    partitions = await rebuilding.subject.partitions(log)
    return await find_cut_point(log, loaded.name, parse_as_of(text, now_ms=0), partitions)


def rows_of(directory: Path, name: str) -> Rows:
    schema = truth(SETTINGS)[SOURCE].schema
    return rows_in_sqlite(directory / "shop.db", TableId("", name), schema, key_columns=1)


def damage(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "shop.db")) as database, database:
        database.execute("DELETE FROM purchases WHERE id % 3 = 0")
        database.execute("UPDATE purchases SET note = 'scribbled over' WHERE id % 5 = 0")


def test_a_damaged_table_is_whole_again_after_the_swap(tmp_path: Path) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> RebuildResult:
        damage(tmp_path)
        return await rebuilt(loaded, log, swaps=True)

    result = tell(tmp_path, story)

    expected = rows_of_arrow(truth(SETTINGS)[SOURCE])
    assert rows_of(tmp_path, "purchases") == expected
    assert rows_of(tmp_path, result.kept) != expected, "the old one is kept as it was"


def test_a_rebuild_without_a_swap_leaves_the_live_table_as_it_was(tmp_path: Path) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> RebuildResult:
        damage(tmp_path)
        return await rebuilt(loaded, log, swaps=False)

    result = tell(tmp_path, story)

    assert result.rows > 0
    assert result.kept == ""
    assert rows_of(tmp_path, "purchases") != rows_of_arrow(truth(SETTINGS)[SOURCE])


def test_the_sink_goes_on_from_where_the_copy_stood(tmp_path: Path) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> None:
        await rebuilt(loaded, log, swaps=True)
        await run_to_end(loaded, log)

    tell(tmp_path, story)

    assert rows_of(tmp_path, "purchases") == rows_of_arrow(truth(SETTINGS)[SOURCE])


def test_an_unknown_table_is_told_with_what_there_is(tmp_path: Path) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> None:
        await find_rebuilding(loaded, log, table="invoices", sink=None)

    with pytest.raises(ConfigError, match=r"crm\.purchases"):
        tell(tmp_path, story)


@pytest.mark.parametrize("transaction", [100, 250])
def test_a_table_is_put_back_to_what_it_was_and_stays_so_until_it_is_resumed(
    tmp_path: Path, transaction: int
) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> Any:
        then = await cut_point(loaded, log, f"stream={transaction}")
        wanted = RebuildOptions(swaps=True, verifies=True, as_of=then)
        result = await rebuilt_as(loaded, log, wanted)
        past = rows_of(tmp_path, "purchases")
        await run_to_end(loaded, log)
        return result, past, await read_desired(log, loaded.name)

    result, past, wished = tell(tmp_path, story)

    assert past == rows_of_arrow(truth(SETTINGS, transaction)[SOURCE])
    assert result.verdict.is_equal
    assert result.is_paused
    assert wished.paused_tables == {"shop.orders"}
    assert rows_of(tmp_path, "purchases") == rows_of_arrow(truth(SETTINGS)[SOURCE])


def test_a_copy_elsewhere_is_equal_and_leaves_the_live_table_alone(tmp_path: Path) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> RebuildResult:
        damage(tmp_path)
        rebuilding = await find_rebuilding(loaded, log, table="purchases", sink=None)
        part = sink_elsewhere(rebuilding.part, "sqlite:///elsewhere.db")
        return await rebuild_elsewhere(
            TableRebuild(loaded, part, rebuilding.subject),
            log,
            RebuildOptions(verifies=True, as_of=await cut_point(loaded, log, "stream=120")),
            clock=SystemClock(),
        )

    result = tell(tmp_path, story)

    schema = truth(SETTINGS)[SOURCE].schema
    path = tmp_path / "elsewhere.db"
    elsewhere = rows_in_sqlite(path, TableId("", "purchases"), schema, key_columns=1)
    assert elsewhere == rows_of_arrow(truth(SETTINGS, 120)[SOURCE])
    assert result.verdict is not None
    assert result.verdict.is_equal
    assert rows_of(tmp_path, "purchases") != rows_of_arrow(truth(SETTINGS)[SOURCE])


@pytest.mark.parametrize("place", ["./lake", "lake", "lake/"])
def test_the_place_of_the_live_table_is_no_other_place(tmp_path: Path, place: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "{pipeline: shop, source: {type: generator}, sink: {type: spark, path: ./lake}}"
    )
    [loaded] = load(path, environment=os.environ)

    with pytest.raises(ConfigError, match="the target is that of the live table"):
        sink_elsewhere(loaded.sinks[0], place)


def test_a_copy_of_another_moment_is_begun_anew(tmp_path: Path) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> list[RebuildResult]:
        cut_points = [await cut_point(loaded, log, f"stream={each}") for each in (120, 60, 60)]
        wanted = [RebuildOptions(as_of=then, verifies=True) for then in cut_points]
        return [await rebuilt_as(loaded, log, each) for each in wanted]

    later, earlier, same = tell(tmp_path, story)

    assert later.rows > earlier.rows > same.rows == 0, "the copy that is there is gone on with"
    for each in (later, earlier, same):
        assert each.verdict is not None and each.verdict.is_equal


def test_a_table_that_is_elsewhere_already_is_not_turned_back(tmp_path: Path) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> None:
        found = await find_rebuilding(loaded, log, table="purchases", sink=None)
        part = sink_elsewhere(found.part, "sqlite:///elsewhere.db")
        for each in (120, 60):
            wanted = RebuildOptions(as_of=await cut_point(loaded, log, f"stream={each}"))
            elsewhere = TableRebuild(loaded, part, found.subject)
            await rebuild_elsewhere(elsewhere, log, wanted, clock=SystemClock())

    with pytest.raises(SinkRejected, match="later state"):
        tell(tmp_path, story)


def test_the_command_plans_refuses_and_replays(tmp_path: Path, headwater: Any) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> None:
        pass

    tell(tmp_path, story)
    file, before = tmp_path / "pipeline.yaml", rows_of(tmp_path, "purchases")

    planned = headwater(
        "rebuild", "shop/orders", "--as-of", "stream=120", "--swap", "--dry-run", "-f", file
    )
    refused = headwater("rebuild", "shop/orders", "--as-of", "2001-01-01", "-f", file, "--json")
    replayed = headwater(
        "replay", "shop/orders", "--from", "0:10", "--to", "0:20", "--into",
        "{type: files, path: out, format: jsonl}", "-f", file, "--json",
    )  # fmt: skip
    taken = headwater("replay", "shop/orders", "--into", "sql", "-f", file)
    mixed = headwater("replay", "shop/orders", "--into", "console", "-f", file, "--json")
    other = PIPELINE.replace('{type: sql, url: "sqlite:///shop.db", ', "{type: files, path: out, ")
    (tmp_path / "other.yaml").write_text(other)
    impossible = headwater("rebuild", "shop/orders", "--dry-run", "-f", tmp_path / "other.yaml")
    backwards = headwater(
        "replay", "shop/orders", "--from", "0:20", "--to", "0:10", "--into", "console", "-f", file
    )

    assert impossible.code == 2
    assert "cannot make a second copy" in impossible.remarks
    assert backwards.code == 2
    assert "end of the range is before its beginning" in backwards.remarks
    assert planned.code == 0
    assert "leave the table paused" in planned.data
    assert rows_of(tmp_path, "purchases") == before
    assert refused.code == 4
    assert "oldest possible is" in refused.envelope["error"]["hint"]
    assert replayed.envelope["data"]["changes"] == 10
    assert read_files(str(tmp_path / "out"), "crm.purchases").num_rows == 10
    assert (taken.code, "belongs to the pipeline" in taken.remarks) == (2, True)
    assert (mixed.code, mixed.envelope["ok"]) == (2, False)
    assert "format: json" in mixed.envelope["error"]["hint"]
