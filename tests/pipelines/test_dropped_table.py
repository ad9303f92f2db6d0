"""One table is reset, and read anew by the next run, while the others stay as they are."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.pipelines.dead_letters.dead_letter import read_dead_letters
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.control import begin_drop, read_dropping
from headwater.pipelines.journal.inventory import drop_from_log, drop_table_from_log, leavings_of
from headwater.pipelines.journal.replacements import replacements_of
from headwater.pipelines.loops.assembly import make_source
from headwater.pipelines.terminal import exit_codes
from tests.databases import Guest
from tests.pipelines.test_failed_tables import CAST, TABLES, make_tables, pipeline
from tests.pipelines.time_travel.verify.test_verify import execute, rows
from tests.pipelines.time_travel.world import World, tell


async def told(world: World) -> dict[str, Any]:
    ids = {table: await world.log.topic_id(f"copy.{table}") for table in TABLES}
    dead_letters = [each.dead_letter.table for each in await read_dead_letters(world.log, "copy")]
    return {"ids": ids, "letters": dead_letters}


async def make_and_run(world: World) -> None:
    make_tables(world.loaded.directory / "source.db")
    await world.run()


async def run_and_verify(world: World) -> Any:
    await world.run()
    return await world.verified()


async def break_off(dropping: AsyncGenerator[str, None], *, after: int) -> None:
    for _ in range(after):
        await anext(dropping)
    await dropping.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sql", "spark"])
def test_a_table_that_is_dropped_is_read_anew_and_the_others_go_on(
    kind: str, tmp_path: Path, headwater: Any
) -> None:
    source, file = tmp_path / "source.db", tmp_path / "pipeline.yaml"

    async def first(world: World) -> Any:
        make_tables(source)
        execute(source, "INSERT INTO a VALUES (4, 'x')", "INSERT INTO b VALUES (4, 'y')")
        await world.run()
        return await told(world)

    before = tell(tmp_path, pipeline(kind) + CAST, first)
    asked = headwater("drop", "copy/a", "-f", file)
    ran = headwater("drop", "copy/a", "--data", "--yes", "--json", "-f", file)
    execute(source, "DELETE FROM a WHERE id = 4", "UPDATE c SET v = 'late' WHERE id = 1")

    async def again(world: World) -> Any:
        await world.run()
        return await told(world), await world.verified()

    after, verdicts = tell(tmp_path, pipeline(kind) + CAST, again)

    assert asked.code == exit_codes.INVALID and "add --yes" in asked.remarks
    assert ran.code == exit_codes.OK and ran.envelope["data"]["table"] == "a"
    assert "topic copy.a" in ran.envelope["data"]["removed"]
    assert before["letters"] == ["a"] and after["letters"] == []
    assert [table for table in TABLES if before["ids"][table] != after["ids"][table]] == ["a"]
    assert all(each.is_equal for each in verdicts.values()), verdicts
    assert verdicts["a", kind].compared.rows == 3


@pytest.mark.slow
def test_a_target_without_its_data_asks_for_a_rebuild_that_makes_it_equal(
    tmp_path: Path, headwater: Any
) -> None:
    file = tmp_path / "pipeline.yaml"

    tell(tmp_path, pipeline(), make_and_run)
    ran = headwater("drop", "copy/a", "--yes", "-f", file)
    execute(tmp_path / "source.db", "DELETE FROM a WHERE id = 1")
    tell(tmp_path, pipeline(), World.run)
    rebuilt = headwater("rebuild", "copy/a", "--verify", "--swap", "-f", file)
    verdicts = tell(tmp_path, pipeline(), World.verified)

    assert "headwater rebuild copy/a --swap" in ran.remarks
    assert rebuilt.code == exit_codes.OK
    assert all(each.is_equal for each in verdicts.values()), verdicts


POSTGRES = """
pipeline: shop
source: {{type: postgres, url: "{url}", tables: [public.*]}}
sink: {{type: sql, url: "sqlite:///target.db", commit_every: 0s}}
"""


def make_orders_and_items(guest: Guest) -> None:
    for table in ("orders", "items"):
        guest.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, note text)",
            f"INSERT INTO {table} SELECT g, 'old' FROM generate_series(1, 30) g",
        )


def test_a_table_of_postgresql_that_is_dropped_is_read_anew_beside_the_stream(
    guest: Guest, tmp_path: Path, headwater: Any
) -> None:
    text, file = POSTGRES.format(url=guest.owner), tmp_path / "pipeline.yaml"
    make_orders_and_items(guest)

    async def run(world: World) -> Any:
        await world.run()
        return await world.log.topic_id("shop.public.items")

    before = tell(tmp_path, text, run)
    guest.until_nobody_streams()
    ran = headwater("drop", "shop/orders", "--data", "--yes", "-f", file)
    guest.execute(
        "UPDATE orders SET note = 'new' WHERE id < 10",
        "DELETE FROM orders WHERE id = 30",
        "INSERT INTO items VALUES (31, 'new')",
    )
    after = tell(tmp_path, text, run)
    guest.until_nobody_streams()

    assert ran.code == exit_codes.OK and "topic shop.public.orders" in ran.data
    assert before == after
    for table in ("orders", "items"):
        question = f"SELECT id, note FROM {table} ORDER BY id"
        assert rows(tmp_path / "target.db", question) == guest.rows(question)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("drop", "shop/orders", "--data"), "position of public.orders, 3 parts"),
        (("offsets", "reset", "shop"), "snapshot/public.orders"),
    ],
    ids=["drop", "reset"],
)
def test_a_quarantined_table_that_begins_anew_is_quarantined_no_more(
    command: tuple[str, ...], said: str, guest: Guest, tmp_path: Path, headwater: Any
) -> None:
    given = POSTGRES.replace("pipeline: shop", "pipeline: {{name: shop, schema_changes: fail}}")
    text, file = given.format(url=guest.owner), tmp_path / "pipeline.yaml"
    make_orders_and_items(guest)

    async def run(world: World) -> Any:
        with suppress(HeadwaterError):  # of the quarantined table
            await world.run()
        return replacements_of(await load_positions(world.log, "shop"))

    tell(tmp_path, text, run)
    guest.until_nobody_streams()
    guest.execute("ALTER TABLE orders ALTER note TYPE varchar(1) USING 'x'")
    before = tell(tmp_path, text, run)
    guest.until_nobody_streams()
    ran = headwater(*command, "--yes", "-f", file)

    async def again(world: World) -> Any:
        return await run(world), await world.verified()

    after, verdicts = tell(tmp_path, text, again)
    guest.until_nobody_streams()

    assert [each.name for each in before] == ["orders"] and not after
    assert ran.code == exit_codes.OK and said in ran.data
    assert all(each.is_equal for each in verdicts.values()), verdicts
    assert {table for table, _ in verdicts} == {"public.orders", "public.items"}


@pytest.mark.parametrize("steps", [1, 3])
def test_a_drop_that_was_broken_off_is_ended_before_the_source_begins_again(
    steps: int, guest: Guest, tmp_path: Path, headwater: Any
) -> None:
    """Otherwise rows that were deleted since would stay in topics that are left."""
    text, file = POSTGRES.format(url=guest.owner), tmp_path / "pipeline.yaml"
    make_orders_and_items(guest)

    async def broken_off(world: World) -> None:
        await make_source(world.loaded, clock=world.clock).drop()
        left = await leavings_of(world.log, "shop")
        dropping = drop_from_log(world.log, "shop", left, now_ms=world.clock.now_ms())
        await break_off(dropping, after=steps)

    tell(tmp_path, text, World.run)
    guest.until_nobody_streams()
    tell(tmp_path, text, broken_off)
    guest.execute("DELETE FROM orders WHERE id = 30", "DELETE FROM items WHERE id = 7")
    ran = headwater("run", "--once", file)
    guest.until_nobody_streams()
    ended = headwater("drop", "shop", "--data", "--yes", "-f", file)
    verdicts = tell(tmp_path, text, run_and_verify)
    guest.until_nobody_streams()

    assert ran.code == exit_codes.DIFFERENT and "a drop of it was broken off" in ran.remarks
    assert "end it: headwater drop shop" in ran.remarks
    assert ended.code == exit_codes.OK
    assert len(verdicts) == 4 and all(each.is_equal for each in verdicts.values()), verdicts


@pytest.mark.parametrize("steps", [1, 2])
def test_a_drop_of_a_table_that_was_broken_off_is_ended_before_any_task_begins_again(
    steps: int, tmp_path: Path, headwater: Any
) -> None:
    """Otherwise a run on another machine would read rows into the topic that is about to go."""
    file = tmp_path / "pipeline.yaml"

    async def broken_off(world: World) -> None:
        now_ms = world.clock.now_ms()
        parts = ["table/a"]
        dropping = drop_table_from_log(world.log, "copy", "a", parts=parts, now_ms=now_ms)
        await break_off(dropping, after=steps)

    tell(tmp_path, pipeline(), make_and_run)
    tell(tmp_path, pipeline(), broken_off)
    ran = headwater("run", "--once", "--json", file)
    ended = headwater("drop", "copy/a", "--data", "--yes", "-f", file)
    verdicts = tell(tmp_path, pipeline(), run_and_verify)

    assert ran.code == exit_codes.DIFFERENT
    assert "end it: headwater drop copy/a" in ran.remarks
    assert {each["task"] for each in ran.envelope["data"]["undelivered"]} == {"source", "sql"}
    assert ended.code == exit_codes.OK
    assert verdicts and all(each.is_equal for each in verdicts.values()), verdicts


def test_a_drop_of_a_table_of_which_only_the_end_is_missing_can_be_ended(
    tmp_path: Path, headwater: Any
) -> None:
    async def dropping(world: World) -> None:
        await make_and_run(world)
        now_ms = world.clock.now_ms()
        parts = ["table/a"]
        async for _ in drop_table_from_log(world.log, "copy", "a", parts=parts, now_ms=now_ms):
            continue
        await begin_drop(world.log, "copy", "a", now_ms=now_ms)

    async def dropped(world: World) -> frozenset[str]:
        return await read_dropping(world.log, "copy")

    tell(tmp_path, pipeline(), dropping)
    ended = headwater("drop", "copy/a", "--yes", "-f", tmp_path / "pipeline.yaml")

    assert ended.code == exit_codes.OK
    assert not tell(tmp_path, pipeline(), dropped)
