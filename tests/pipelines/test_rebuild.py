"""A rebuilt table equals its source whatever had become of the live one, which is kept."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from connectors.generator.settings import GeneratorSettings
from connectors.generator.truth import truth
from core_log.clock import SystemClock
from core_log.embedded import EmbeddedLog
from core_log.errors import ConfigError
from core_log.settings import BrokerSettings
from core_log.table_schema import TableId
from pipelines.file.loading import LoadedPipeline, load
from pipelines.journal.control import Desired
from pipelines.loops.build import run_unit
from pipelines.loops.rebuild import Rebuilt, Wanted, find_rebuilding, rebuild
from scripts.shop_targets import Rows, rows_in_sqlite, rows_of_arrow

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
    for unit in ("source", "sql"):
        await run_unit(
            loaded,
            unit,
            log,
            desired=lambda: Desired(loaded.name),
            clock=SystemClock(),
            report=lambda _: None,
            until_end=True,
        )


async def rebuilt(loaded: LoadedPipeline, log: EmbeddedLog, *, swaps: bool) -> Rebuilt:
    return await rebuild(
        await find_rebuilding(loaded, log, table="purchases", sink=None),
        log,
        Wanted(swaps=swaps),
        is_running=False,
        clock=SystemClock(),
        tell=lambda _: None,
    )


def rows_of(directory: Path, name: str) -> Rows:
    schema = truth(SETTINGS)[SOURCE].schema
    return rows_in_sqlite(directory / "shop.db", TableId("", name), schema, key_columns=1)


def damage(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "shop.db")) as database, database:
        database.execute("DELETE FROM purchases WHERE id % 3 = 0")
        database.execute("UPDATE purchases SET note = 'scribbled over' WHERE id % 5 = 0")


def test_a_damaged_table_is_whole_again_after_the_swap(tmp_path: Path) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> Rebuilt:
        damage(tmp_path)
        return await rebuilt(loaded, log, swaps=True)

    result = tell(tmp_path, story)

    expected = rows_of_arrow(truth(SETTINGS)[SOURCE])
    assert rows_of(tmp_path, "purchases") == expected
    assert rows_of(tmp_path, result.kept) != expected, "the old one is kept as it was"


def test_without_a_swap_the_live_table_stays_as_it_was(tmp_path: Path) -> None:
    async def story(loaded: LoadedPipeline, log: EmbeddedLog) -> Rebuilt:
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
