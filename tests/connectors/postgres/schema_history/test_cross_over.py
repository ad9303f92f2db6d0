"""A target whose table cannot take a new form in place gets a new table, and is right again."""

import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.loops.ingest.ingest import SOURCE
from headwater.pipelines.reports import Report, StateChanged, TaskState
from headwater.pipelines.running.first_checks import checked_first
from headwater.pipelines.time_travel.rebuild import rebuild as rebuild_module
from headwater.pipelines.time_travel.rebuild import schema_change
from headwater.pipelines.time_travel.rebuild.rebuild import (
    RebuildOptions,
    RebuildResult,
    TableRebuild,
    beginnings_in,
    find_rebuilding,
    rebuild,
)
from headwater.pipelines.time_travel.verify.result import ComparedSides, TableVerdict
from headwater.pipelines.time_travel.verify.table_selection import subjects_of
from headwater.pipelines.time_travel.verify.verify import Verifier
from tests.budget import IS_LONG
from tests.databases import Guest
from tests.pipelines.task_runs import task_run

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

    async def run(self, *statements: str, tasks: Sequence[str] = (SOURCE, "sql", "spark")) -> None:
        self.guest.execute(*statements)
        self.states.clear()
        for task in tasks:
            await self.run_task(task)

    async def run_task(self, task: str) -> None:
        await checked_first()(task_run(self.loaded, task, self.log, report=self.report))

    def report(self, report: Report) -> None:
        if isinstance(report, StateChanged):
            self.states.append(report)

    def targets(self, columns: str) -> list[Any]:
        """What both targets have, without rows that were deleted."""
        found = [
            sorted(
                (
                    tuple(row[name] for name in columns.split(", "))
                    for row in rows
                    if row.get("_headwater_deleted_at") is None
                ),
                key=repr,
            )
            for rows in self.rows()
        ]
        assert found[0] == found[1]
        return found[0]

    def rows(self) -> list[list[dict[str, Any]]]:
        """Of each target."""
        with closing(sqlite3.connect(self.directory / "target.db")) as database:
            database.row_factory = sqlite3.Row
            in_database = [dict(row) for row in database.execute("SELECT * FROM items")]
        lake = DeltaTable(str(self.directory / "lake" / "public.items"))
        return [in_database, lake.to_pyarrow_table().to_pylist()]

    async def rebuild(self, sink: str) -> None:
        """As `headwater rebuild --swap` does."""
        rebuilding = await find_rebuilding(self.loaded, self.log, table="public.items", sink=sink)
        rebuilt = await self.rebuild_as(rebuilding)
        assert rebuilt.verdict is not None and rebuilt.verdict.is_as_told
        assert rebuilt.kept

    async def rebuild_as(self, begun: TableRebuild) -> RebuildResult:
        """The table as it was found, be it some time ago."""
        return await rebuild(
            begun,
            self.log,
            RebuildOptions(swaps=True, verifies=True),
            is_running=False,
            clock=SystemClock(),
            reporter=lambda _: None,
        )

    async def differing(self) -> dict[str, int]:
        """What `headwater verify` says of each side."""
        verdicts = await self.verdicts()
        assert not [each.problem for each in verdicts if each.problem]
        return {each.side: each.compared.differing for each in verdicts}

    async def verdicts(self) -> Sequence[TableVerdict]:
        verifier = Verifier(self.loaded, self.log, clock=SystemClock(), is_running=False)
        return await verifier.verify(await subjects_of(self.loaded, self.log), ComparedSides())

    def source(self, columns: str) -> list[Any]:
        return sorted(self.guest.rows(f"SELECT {columns} FROM items"), key=repr)


async def dead_letters(log: EmbeddedLog) -> int:
    place = TopicPartition("shop.dlq", 0)
    return (await log.bounds([place]))[place].end


def in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


@asynccontextmanager
async def crossing_in(guest: Guest, directory: Path, *, mode: str) -> AsyncIterator[Crossing]:
    guest.execute(*CREATE)
    guest.publish("items")
    file = directory / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url, mode=mode))
    [loaded] = load(file, environment={})
    log = await EmbeddedLog.open(BrokerSettings(data=directory / "data", listen="127.0.0.1:0"))
    try:
        yield Crossing(guest, log, loaded, directory, [])
    finally:
        await log.close()


@pytest.fixture(params=["mirror", "soft_delete"])
async def crossing(
    guest: Guest, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Crossing]:
    async with crossing_in(guest, tmp_path, mode=request.param) as found:
        yield found


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

    assert crossing.targets("id, a, b") == crossing.source("id, a, b")
    assert len(crossing.source("id")) == 51
    assert not [each for each in crossing.states if each.state is TaskState.QUARANTINED]


async def test_a_table_of_another_form_says_that_it_is_read_again_and_made_anew(
    crossing: Crossing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await crossing.run()

    await crossing.run("ALTER TABLE items ALTER b TYPE text USING 't' || b")

    why = "the column b was altered and the table rewritten"
    of_table = [each for each in crossing.states if each.table]
    told = {(each.task, each.state): each.reason for each in of_table}
    assert told[SOURCE, TaskState.REREADING].startswith(why)
    assert told["sql", TaskState.REBUILDING].startswith("rebuilt from the log: ")
    assert [each.state for each in of_table if each.task == SOURCE][-1] is TaskState.RUNNING
    assert [each.state for each in of_table if each.task == "sql"][-1] is TaskState.RUNNING
    lines = [each for each in caplog.messages if " is read again: " in each]
    assert [line.split(" (")[0] for line in lines] == [f"shop: public.items is read again: {why}"]
    assert "shop: the re-read of public.items has ended" in caplog.messages
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_older_values_that_do_not_fit_the_new_type_are_not_asked_for(
    crossing: Crossing,
) -> None:
    await crossing.run()

    await crossing.run("ALTER TABLE items ALTER a TYPE int USING length(a)")

    assert crossing.targets("id, a, b") == crossing.source("id, a, b")


async def test_a_renamed_column_has_its_values_in_the_target(crossing: Crossing) -> None:
    await crossing.run()

    await crossing.run("ALTER TABLE items RENAME a TO c")

    assert crossing.targets("id, c, b") == crossing.source("id, c, b")


async def test_a_default_of_a_new_column_is_in_the_target(crossing: Crossing) -> None:
    await crossing.run()

    await crossing.run("ALTER TABLE items ADD c int DEFAULT 7")

    assert crossing.targets("id, c, b") == crossing.source("id, c, b")


KEYS = {
    "another column": [
        "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (id, a)",
        "INSERT INTO items VALUES (1, 'other', 1)",
        "DELETE FROM items WHERE id = 2",
    ],
    "a renamed column": ["ALTER TABLE items RENAME id TO nr", "DELETE FROM items WHERE nr = 2"],
    "another type": ["ALTER TABLE items ALTER id TYPE text USING 'k' || id"],
}


@pytest.mark.parametrize(
    ("name", "identity"),
    [*product(KEYS, ("DEFAULT", "FULL"))]
    if IS_LONG
    else [("another column", "FULL"), ("a renamed column", "DEFAULT"), ("another type", "FULL")],
)
async def test_another_key_is_in_the_target_without_a_person(
    crossing: Crossing, name: str, identity: str
) -> None:
    crossing.guest.execute(f"ALTER TABLE items REPLICA IDENTITY {identity}")
    await crossing.run()

    await crossing.run(*KEYS[name])
    await crossing.run("DELETE FROM items WHERE b = 5", "UPDATE items SET b = -b WHERE b > 40")

    columns = "nr, a, b" if "renamed" in name else "id, a, b"
    assert crossing.targets(columns) == crossing.source(columns)


async def test_a_target_of_the_former_key_is_not_compared(crossing: Crossing) -> None:
    await crossing.run()

    await crossing.run(*KEYS["another column"], tasks=[SOURCE])
    verdicts = await crossing.verdicts()

    problems = {each.side: each.problem for each in verdicts}
    assert not problems["source"]
    assert "the target table has another key" in problems["sql"]
    assert "the target table has the former key" in problems["spark"]


async def test_deleted_rows_of_a_former_key_are_no_difference(crossing: Crossing) -> None:
    await crossing.run()
    await crossing.run("DELETE FROM items WHERE id IN (3, 4)")

    await crossing.run("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (id, a)")

    assert await crossing.differing() == {"source": 0, "sql": 0, "spark": 0}
    for rows in crossing.rows():
        gone = {row["id"] for row in rows if row.get("_headwater_deleted_at") is not None}
        assert gone == ({3, 4} if "_headwater_deleted_at" in rows[0] else set())


async def test_deleted_rows_whose_key_has_another_type_stay_in_the_old_table(
    crossing: Crossing,
) -> None:
    await crossing.run()
    await crossing.run("DELETE FROM items WHERE id IN (3, 4)")

    await crossing.run(*KEYS["another type"])

    assert crossing.targets("id, a, b") == crossing.source("id, a, b")
    assert await crossing.differing() == {"source": 0, "sql": 0, "spark": 0}


async def test_deleted_rows_stay_whatever_types_their_columns_had(crossing: Crossing) -> None:
    await crossing.run()
    await crossing.run("DELETE FROM items WHERE id IN (3, 4)")

    await crossing.run("ALTER TABLE items ALTER a TYPE int USING length(a)")
    await crossing.run("UPDATE items SET b = 0 WHERE id = 5", "DELETE FROM items WHERE id = 6")

    assert crossing.targets("id, a, b") == crossing.source("id, a, b")
    assert await crossing.differing() == {"source": 0, "sql": 0, "spark": 0}
    gone = {3: (None, 3), 4: (None, 4), 6: (2, 6)}
    for rows in crossing.rows():
        marked = [row for row in rows if row.get("_headwater_deleted_at") is not None]
        found = {row["id"]: (row["a"], row["b"]) for row in marked}
        assert found == ({} if "_headwater_deleted_at" not in rows[0] else gone)


async def test_values_of_deleted_rows_that_the_present_type_cannot_hold_are_no_difference(
    crossing: Crossing,
) -> None:
    """A lake keeps a column of decimals for whole numbers."""
    await crossing.run("ALTER TABLE items ADD n numeric(12,2)", "UPDATE items SET n = id + 0.25")
    await crossing.run("DELETE FROM items WHERE id IN (3, 4)")

    await crossing.run("ALTER TABLE items ALTER n TYPE smallint")

    assert crossing.targets("id, n") == crossing.source("id, n")
    assert await crossing.differing() == {"source": 0, "sql": 0, "spark": 0}


async def test_rows_deleted_before_the_target_came_to_the_new_form_stay(
    crossing: Crossing,
) -> None:
    await crossing.run()
    await crossing.run("DELETE FROM items WHERE id = 3")

    await crossing.run(
        "DELETE FROM items WHERE id = 4",
        "INSERT INTO items VALUES (3, 'again', 33), (51, 'short', 51)",
        "DELETE FROM items WHERE id IN (3, 51)",
        "UPDATE items SET b = 0 WHERE id = 5",
        "ALTER TABLE items ALTER a TYPE int USING length(a)",
    )

    assert crossing.targets("id, a, b") == crossing.source("id, a, b")
    assert await crossing.differing() == {"source": 0, "sql": 0, "spark": 0}
    for rows in crossing.rows():
        marked = [row for row in rows if row.get("_headwater_deleted_at") is not None]
        gone = {row["id"]: (row["a"], row["b"]) for row in marked}
        is_kept = "_headwater_deleted_at" in rows[0]
        assert gone == ({3: (None, 33), 4: (None, 4), 51: (None, 51)} if is_kept else {})


async def test_a_table_without_rows_has_its_new_form_in_the_target(crossing: Crossing) -> None:
    await crossing.run()

    await crossing.run("TRUNCATE items", "ALTER TABLE items ALTER a TYPE int USING length(a)")
    assert crossing.targets("id") == []
    await crossing.run("INSERT INTO items VALUES (1, 2, 3)")

    assert crossing.targets("id, a, b") == [(1, 2, 3)]
    assert await crossing.differing() == {"source": 0, "sql": 0, "spark": 0}


async def test_a_target_that_begins_behind_another_type_has_the_rows_of_now(
    crossing: Crossing,
) -> None:
    await crossing.run("DELETE FROM items WHERE id = 3", tasks=[SOURCE])
    await crossing.run("DELETE FROM items WHERE id = 4", tasks=[SOURCE])
    await crossing.run("ALTER TABLE items ALTER a TYPE int USING length(a)", tasks=[SOURCE])

    await crossing.run("DELETE FROM items WHERE id = 5")

    assert crossing.targets("id, a, b") == crossing.source("id, a, b")
    assert await crossing.differing() == {"source": 0, "sql": 0, "spark": 0}


@pytest.fixture(params=["append", "scd2"])
async def history(
    guest: Guest, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Crossing]:
    async with crossing_in(guest, tmp_path, mode=request.param) as found:
        yield found


async def test_a_history_is_told_only_of_rows_that_became_others(history: Crossing) -> None:
    """The type of the column stays, and the values of few rows do not."""
    await history.run()

    await history.run(
        "ALTER TABLE items ALTER b TYPE int USING CASE WHEN id = 3 THEN 30 ELSE b END",
        "UPDATE items SET a = 'new' WHERE id = 4",
    )

    told = history.rows()
    assert [len(rows) for rows in told] == [52, 52], "two of fifty rows are others"
    assert await history.differing() == dict.fromkeys(("source", "sql", "spark"), 0)
    for sink in ("sql", "spark"):
        await history.rebuild(sink)
    assert [*map(in_order, history.rows())] == [*map(in_order, told)]


@pytest.mark.parametrize("sink", ["sql", "spark"])
async def test_a_copy_that_a_later_form_overtakes_is_made_anew(
    crossing: Crossing, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    """The copy was begun for numbers; the later texts are no numbers, and are not to blame."""
    await crossing.run()
    await crossing.run("ALTER TABLE items ALTER a TYPE int USING length(a)", tasks=[SOURCE])
    begun = await find_rebuilding(crossing.loaded, crossing.log, table="public.items", sink=sink)
    await crossing.run("ALTER TABLE items ALTER a TYPE text USING 'x' || a", tasks=[SOURCE])

    with pytest.raises(LogUnavailable, match="another form"):
        await crossing.rebuild_as(begun)
    found = [begun, begun]

    async def find(*given: Any, **more: Any) -> Any:
        return found.pop() if found else await find_rebuilding(*given, **more)

    monkeypatch.setattr(schema_change, "find_rebuilding", find)
    for task in ("sql", "spark"):
        await crossing.run_task(task)

    assert not found, "the table was made anew"
    assert crossing.targets("id, a, b") == crossing.source("id, a, b")
    assert await dead_letters(crossing.log) == 0


async def test_a_copy_of_rows_of_a_former_topic_is_not_continued(crossing: Crossing) -> None:
    """The key is the same one again, and so is every column; the topic is not."""
    other, first = (
        f"ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY ({key})"
        for key in ("id, a", "id")
    )
    await crossing.run()
    await crossing.run(other, tasks=[SOURCE])
    for sink in ("sql", "spark"):
        await rebuild(
            await find_rebuilding(crossing.loaded, crossing.log, table="public.items", sink=sink),
            crossing.log,
            RebuildOptions(),
            is_running=False,
            clock=SystemClock(),
            reporter=lambda _: None,
        )

    await crossing.run("DELETE FROM items WHERE id < 9", first, tasks=[SOURCE])
    await crossing.run(other)

    assert not [each for each in crossing.states if each.state is TaskState.QUARANTINED]
    assert crossing.targets("id, a, b") == crossing.source("id, a, b")


@pytest.mark.parametrize("sink", ["sql", "spark"])
async def test_a_copy_that_a_reread_overtakes_is_made_anew(
    crossing: Crossing, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    """The table has the copy's form again; the text that it had between is not to blame."""
    await crossing.run()
    await crossing.run("ALTER TABLE items ALTER a TYPE int USING length(a)", tasks=[SOURCE])
    begun = await find_rebuilding(crossing.loaded, crossing.log, table="public.items", sink=sink)
    former = [await beginnings_in(begun, crossing.log)] * 3
    await crossing.run(
        "ALTER TABLE items ALTER a TYPE text USING 'x' || a",
        "UPDATE items SET a = 'none' WHERE id = 1",
        "ALTER TABLE items ALTER a TYPE int USING length(a)",
        tasks=[SOURCE],
    )

    async def find_beginnings(*given: Any) -> Any:
        return former.pop() if former else await beginnings_in(*given)

    monkeypatch.setattr(rebuild_module, "beginnings_in", find_beginnings)
    with pytest.raises(LogUnavailable, match="read again while"):
        await crossing.rebuild_as(begun)
    for task in ("sql", "spark"):
        await crossing.run_task(task)

    assert crossing.targets("id, a, b") == crossing.source("id, a, b")
    assert await dead_letters(crossing.log) == 0


async def test_a_dropped_column_of_a_quiet_table_is_no_difference(crossing: Crossing) -> None:
    """The log gets nothing for it until a row changes."""
    await crossing.run()

    await crossing.run("ALTER TABLE items DROP b")

    verdicts = {each.side: each for each in await crossing.verdicts()}
    assert {side: each.compared.differing for side, each in verdicts.items()} == {
        "source": 0,
        "sql": 0,
        "spark": 0,
    }
    assert verdicts["source"].left_out == ("b",)
