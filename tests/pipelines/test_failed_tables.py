"""One table that fails is an outcome of its own, and the others are done with all the same."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.pipelines.loops.assembly import run_task
from headwater.pipelines.reports import OffsetsApplied, StateChanged, TaskState
from headwater.pipelines.time_travel.verify.result import ComparedSides
from tests.pipelines.task_runs import task_run
from tests.pipelines.time_travel.verify.test_verify import execute
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

SINKS = {
    "sql": '{type: sql, url: "sqlite:///target.db", commit_every: 0s}',
    "spark": "{type: spark, path: lake, commit_every: 0s}",
}
KEPT = {"kept": '{type: spark, path: lake, commit_every: 0s, tables: {"*": {mode: soft_delete}}}'}
PIPELINE = """
pipeline: copy
source: {{type: sql, url: "sqlite:///source.db", tables: ["*"], deletes: compare}}
sink: {sink}
errors: {{retry: {{for: 0s}}}}
"""
REFUSING = {
    "kafka": "{type: kafka, bootstrap: HOST, topic: 'to-{table}', commit_every: 0s}",
    "files": "{type: files, path: target, commit_every: 0s}",
    "sql": SINKS["sql"],
    **{
        kind: f"{{type: spark, path: target, format: {kind}, commit_every: 0s}}"
        for kind in ("delta", "iceberg")
    },
    "parquet": "{type: spark, path: target, format: parquet, commit_every: 0s,"
    " tables: {'*': {mode: append}}}",
}
CAST = "transform: [{table: a, cast: {v: int64}}]\n"
TABLES = ("a", "b", "c")


def pipeline(kind: str = "sql") -> str:
    return PIPELINE.format(sink=(SINKS | KEPT)[kind])


def make_tables(path: Path) -> None:
    for table in TABLES:
        execute(
            path,
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, v TEXT)",
            f"INSERT INTO {table} VALUES (1, '10'), (2, '20'), (3, '30')",
        )


def outcome_of(ran: Any) -> dict[tuple[str, str], str]:
    """By table and side, as `verify --json` tells it."""

    def word(each: dict[str, Any]) -> str:
        if each["problem"]:
            return "failed"
        if each["unread"]:
            return "not all"
        return "equal" if each["equal"] else "differs"

    return {(each["table"], each["side"]): word(each) for each in ran.envelope["data"]["tables"]}


def test_a_row_that_cannot_be_cast_is_named_and_everything_else_is_compared(
    tmp_path: Path, headwater: Any
) -> None:
    async def story(world: World) -> Any:
        make_tables(tmp_path / "source.db")
        execute(tmp_path / "source.db", "INSERT INTO a VALUES (4, 'x')")
        await world.run()

    tell(tmp_path, pipeline() + CAST, story)
    ran = headwater("verify", "copy", "--json", "-f", tmp_path / "pipeline.yaml")

    found = outcome_of(ran)
    assert ran.code == 4
    assert (found["a", "source"], found["a", "sql"]) == ("not all", "not all")
    assert {found[table, side] for table in "bc" for side in ("source", "sql")} == {"equal"}


def test_a_table_that_the_source_cannot_read_is_named_and_everything_else_is_compared(
    tmp_path: Path, headwater: Any
) -> None:
    async def story(world: World) -> Any:
        make_tables(tmp_path / "source.db")
        execute(
            tmp_path / "source.db",
            "CREATE TABLE days (id INTEGER PRIMARY KEY, day DATE)",
            "INSERT INTO days VALUES (1, 'today')",
        )
        await world.run()

    tell(tmp_path, pipeline(), story)
    ran = headwater("verify", "copy", "--json", "-f", tmp_path / "pipeline.yaml")

    found = outcome_of(ran)
    assert ran.code == 4 and found.pop(("days", "source")) == "failed"
    assert len(found) == 2 * len(TABLES) and set(found.values()) == {"equal"}


@pytest.mark.parametrize("kind", SINKS)
def test_a_type_that_waits_for_a_rebuild_keeps_no_other_table_from_verify_and_plan(
    kind: str, tmp_path: Path, headwater: Any
) -> None:
    async def story(world: World) -> Any:
        make_tables(tmp_path / "source.db")
        await world.run()
        execute(
            tmp_path / "source.db",
            "DROP TABLE a",
            "CREATE TABLE a (id INTEGER PRIMARY KEY, v INTEGER)",
            "INSERT INTO a VALUES (1, 10), (2, 20), (5, 7)",
            "UPDATE c SET v = 'late' WHERE id = 2",
        )
        await world.run("source")

    tell(tmp_path, pipeline(kind), story)
    file = tmp_path / "pipeline.yaml"
    verified = headwater("verify", "copy", "--json", "-f", file)
    planned = headwater("plan", file)

    found = outcome_of(verified)
    if kind == "sql":  # a table of the lake is equal to the log as of where it stands
        assert (verified.code, found["a", kind]) == (4, "failed")
    assert found["a", "source"] == found["b", "source"] == found["b", kind] == "equal"
    assert planned.code == 4
    assert f"a cannot be planned in {kind}" in planned.data and "rebuild" in planned.data
    assert "copy.b" in planned.data


def test_a_damaged_file_of_one_table_is_its_outcome(tmp_path: Path, headwater: Any) -> None:
    async def story(world: World) -> Any:
        make_tables(tmp_path / "source.db")
        await world.run()

    tell(tmp_path, pipeline("spark"), story)
    [damaged] = (tmp_path / "lake" / "a").glob("*.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    ran = headwater("verify", "copy", "--json", "-f", tmp_path / "pipeline.yaml")

    found = outcome_of(ran)
    assert ran.code == 4
    assert found["a", "spark"] == "failed"
    assert {found[table, "spark"] for table in "bc"} == {"equal"}


def test_a_table_that_cannot_be_mended_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.pipelines.time_travel.verify.repair_target.KEYS_MAX", 2)

    async def story(world: World) -> Any:
        make_tables(tmp_path / "source.db")
        await world.run()
        execute(tmp_path / "target.db", "DELETE FROM a", "DELETE FROM b WHERE id = 1")
        return await world.verified(sides=ComparedSides(source=False), repairs=True)

    found = tell(tmp_path, pipeline(), story)

    assert found["a", "sql"].compared.differing == 3 and "too many" in found["a", "sql"].unrepaired
    assert found["b", "sql"].is_equal and found["b", "sql"].repaired == 1


def held_reasons(told: list[Any]) -> dict[str, str]:
    """The tables that are quarantined at the end, and why."""
    found: dict[str, str] = {}
    for each in told:
        if isinstance(each, StateChanged) and each.table:
            found.pop(each.table, None)
            if each.state is TaskState.QUARANTINED:
                found[each.table] = each.reason
    return found


async def run_told(world: World, task: str) -> dict[str, str]:
    return held_reasons(await reports_of(world, task))


async def reports_of(world: World, task: str) -> list[Any]:
    told: list[Any] = []
    await run_task(task_run(world.loaded, task, world.log, clock=world.clock, report=told.append))
    return told


def test_a_damaged_file_of_the_lake_holds_its_table_alone_at_every_start(
    tmp_path: Path, headwater: Any
) -> None:
    async def story(world: World) -> Any:
        make_tables(tmp_path / "source.db")
        await world.run()
        [damaged] = (tmp_path / "lake" / "a").glob("*.parquet")
        damaged.write_bytes(damaged.read_bytes()[:-100])
        for table in TABLES:
            execute(tmp_path / "source.db", f"UPDATE {table} SET v = 'new' WHERE id = 1")
        await world.run("source")
        first = await run_told(world, "spark")
        [log] = (tmp_path / "lake" / "b" / "_delta_log").glob("*00.json")
        log.write_bytes(b"{damaged")
        for table in TABLES:
            execute(tmp_path / "source.db", f"UPDATE {table} SET v = 'newer' WHERE id = 1")
        await world.run("source")
        second = await run_told(world, "spark")
        return first, second, await world.verified("c")

    first, second, others = tell(tmp_path, pipeline("kept"), story)
    maintained = headwater("maintain", "copy", "-f", tmp_path / "pipeline.yaml")

    assert list(first) == ["a"] and "rebuild" in first["a"] and "next try" in first["a"]
    assert sorted(second) == ["a", "b"]
    assert others["c", "spark"].is_equal
    assert maintained.code == 4 and "b: " in maintained.data


def test_a_target_that_refuses_every_table_is_said_once(tmp_path: Path, headwater: Any) -> None:
    file = tmp_path / "pipeline.yaml"
    (tmp_path / "target").mkdir()
    sink = "sink: {type: sql, url: 'sqlite:///target'}"
    file.write_text(f"pipeline: shop\nsource: {{type: generator}}\n{sink}\n")

    planned = headwater("plan", file)

    assert planned.code == 4
    assert planned.data.count("the path is a directory") == 1
    assert "shop.products, shop.orders, shop.order_lines cannot be planned in sql:" in planned.data
    assert "nothing to create" not in planned.data


async def refuse(kind: str, directory: Path, target: EmbeddedLog) -> None:
    """The target takes every table but `a`."""
    if kind == "kafka":
        small = TopicSettings(name="to-a", config={"max.message.bytes": "100"})
        await target.ensure_topic(small)
    elif kind == "sql":
        execute(directory / "target.db", "CREATE VIEW a AS SELECT 1 AS id")
    else:
        (directory / "target").mkdir()
        (directory / "target" / "a").write_text("a file is no directory")


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path / "log", listen="127.0.0.1:0"))
    yield log
    await log.close()


@pytest.mark.parametrize("kind", REFUSING)
async def test_a_table_that_its_target_refuses_is_quarantined_alone(
    kind: str, tmp_path: Path, target: EmbeddedLog
) -> None:
    make_tables(tmp_path / "source.db")
    await refuse(kind, tmp_path, target)
    sink = REFUSING[kind].replace("HOST", target.endpoint)

    async def story(world: World) -> list[Any]:
        await world.run("source")
        return await reports_of(world, world.loaded.sinks[0].name)

    told = await asyncio.to_thread(tell, tmp_path, PIPELINE.format(sink=sink), story)

    held = held_reasons(told)
    applied = {name for each in told if isinstance(each, OffsetsApplied) for name in each.positions}
    assert list(held) == ["a"] and "next try" in held["a"]
    assert {name for name in applied if name.startswith("copy.")} == {"copy.b-0", "copy.c-0"}
