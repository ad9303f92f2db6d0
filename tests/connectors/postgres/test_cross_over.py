"""A target whose table cannot take a new form in place gets a new table, and is right again."""

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from core_log.clock import SystemClock
from core_log.embedded import EmbeddedLog
from core_log.settings import BrokerSettings
from pipelines.file.loading import LoadedPipeline, load
from pipelines.journal.control import Desired
from pipelines.loops.ingest import UNIT as SOURCE
from pipelines.reports import Report, State, StateChanged
from pipelines.running.first_checks import checked_first
from tests.databases import Guest

FILE = """
pipeline: shop
source: {{type: postgres, url: "{url}", tables: [public.items]}}
sink:
- {{type: sql, url: "sqlite:///target.db", tables: {{"*": {{mode: {mode}}}}}}}
- {{type: spark, path: ./lake, tables: {{"*": {{mode: {mode}}}}}}}
"""
CREATE = (
    "CREATE TABLE items (id int PRIMARY KEY, a text, b int)",
    "INSERT INTO items SELECT i, 'a' || i, i FROM generate_series(1, 50) i",
)


@dataclass
class Crossing:
    """Runs of one pipeline, each until what is there has been read and applied."""

    guest: Guest
    log: EmbeddedLog
    loaded: LoadedPipeline
    directory: Path
    states: list[StateChanged]

    async def run(self, *statements: str) -> None:
        self.guest.execute(*statements)
        self.states.clear()
        for unit in (SOURCE, "sql", "spark"):
            await checked_first()(
                self.loaded,
                unit,
                self.log,
                desired=lambda: Desired("shop"),
                clock=SystemClock(),
                report=self.report,
                until_end=True,
            )

    def report(self, report: Report) -> None:
        if isinstance(report, StateChanged):
            self.states.append(report)

    def target(self, columns: str) -> list[Any]:
        with closing(sqlite3.connect(self.directory / "target.db")) as database:
            return database.execute(f"SELECT {columns} FROM items ORDER BY id").fetchall()

    def lake(self, columns: str) -> list[Any]:
        table = DeltaTable(str(self.directory / "lake" / "public.items"))
        [*names] = columns.split(", ")
        rows = table.to_pyarrow_table(columns=names).sort_by("id").to_pylist()
        return [tuple(row.values()) for row in rows]

    def source(self, columns: str) -> list[Any]:
        return self.guest.rows(f"SELECT {columns} FROM items ORDER BY id")


@pytest.fixture(params=["mirror", "soft_delete"])
async def crossing(
    guest: Guest, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Crossing]:
    guest.execute(*CREATE)
    guest.publish("items")
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url, mode=request.param))
    [loaded] = load(file, environment={})
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0"))
    try:
        yield Crossing(guest, log, loaded, tmp_path, [])
    finally:
        await log.close()


async def test_another_type_is_in_the_target_without_a_person(
    crossing: Crossing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await crossing.run()

    await crossing.run(
        "ALTER TABLE items ALTER b TYPE text USING 't' || b",
        "UPDATE items SET b = 'changed' WHERE id = 7",
    )
    await crossing.run("INSERT INTO items VALUES (51, 'late', 'later')")

    assert crossing.target("id, a, b") == crossing.lake("id, a, b") == crossing.source("id, a, b")
    assert len(crossing.source("id")) == 51
    assert not [each for each in crossing.states if each.state is State.QUARANTINED]


async def test_older_values_that_do_not_fit_the_new_type_are_not_asked_for(
    crossing: Crossing,
) -> None:
    await crossing.run()

    await crossing.run("ALTER TABLE items ALTER a TYPE int USING length(a)")

    assert crossing.target("id, a, b") == crossing.lake("id, a, b") == crossing.source("id, a, b")


async def test_a_renamed_column_has_its_values_in_the_target(crossing: Crossing) -> None:
    await crossing.run()

    await crossing.run("ALTER TABLE items RENAME a TO c")

    assert crossing.target("id, c, b") == crossing.lake("id, c, b") == crossing.source("id, c, b")


async def test_a_default_of_a_new_column_is_in_the_target(crossing: Crossing) -> None:
    await crossing.run()

    await crossing.run("ALTER TABLE items ADD c int DEFAULT 7")

    assert crossing.target("id, c, b") == crossing.lake("id, c, b") == crossing.source("id, c, b")
