"""Changes of a table with REPLICA IDENTITY FULL, read when its catalogue has gone on."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater.connectors.postgres.events.row_keys import PART
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress, part_of
from headwater.core_log.model.changes import Phase
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.schema_history.test_tables_come_and_go import PIPELINE
from tests.connectors.postgres.slot.test_lost_positions import run_once
from tests.connectors.postgres.source_session import Story, story
from tests.databases import Guest

ROWS = "INSERT INTO orders SELECT g, 'first' FROM generate_series(1, 9) g"
KEYED = (
    "CREATE TABLE orders (id int PRIMARY KEY, note text)",
    "CREATE TABLE emptied (id int PRIMARY KEY, note text)",
    "ALTER TABLE orders REPLICA IDENTITY FULL",
    ROWS,
)
KEYLESS = (
    "CREATE TABLE orders (id int, note text)",
    "CREATE TABLE emptied (id int PRIMARY KEY, note text)",
    "ALTER TABLE orders REPLICA IDENTITY FULL",
    ROWS,
)
DROPPED = "DROP TABLE orders"
RENAMED = "ALTER TABLE orders RENAME id TO nr"
OF_ANOTHER_SHAPE = "ALTER TABLE orders RENAME id TO nr; ALTER TABLE orders ADD city text"
GIVEN_A_KEY = "ALTER TABLE orders ADD nr serial PRIMARY KEY"


@pytest.mark.parametrize("accident", [DROPPED, RENAMED])
async def test_a_table_that_has_changed_meanwhile_stops_no_other(
    guest: Guest, tmp_path: Path, accident: str
) -> None:
    guest.execute(*KEYED)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(url=guest.owner, tables='["public.*"]'))
    await run_once(file)

    guest.execute(
        "UPDATE orders SET note = 'second' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
        accident,
        "INSERT INTO emptied VALUES (1, 'later')",
    )
    await run_once(file)
    await run_once(file)

    assert rows_of_emptied(tmp_path) == [(1, "later")]


@pytest.mark.parametrize("accident", [DROPPED, RENAMED, OF_ANOTHER_SHAPE])
@pytest.mark.parametrize("identity", ["FULL", "DEFAULT"])
async def test_the_key_of_then_is_the_key(guest: Guest, accident: str, identity: str) -> None:
    guest.execute(*KEYED, f"ALTER TABLE orders REPLICA IDENTITY {identity}")
    async with story(guest, url=guest.owner) as before:
        pass

    guest.execute("DELETE FROM orders WHERE id = 2", accident)
    async with story(guest, url=guest.owner, positions=before.positions) as told:
        pass

    assert keys_of(told) == [("id",)]


async def test_the_key_that_changes_went_out_under_last_is_the_key(guest: Guest) -> None:
    guest.execute(*KEYED)
    async with story(guest, url=guest.owner) as before:
        await before.tell(
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey",
            "ALTER TABLE orders ADD nr serial PRIMARY KEY",
            "UPDATE orders SET note = 'second' WHERE id = 1",
        )

    guest.execute("DELETE FROM orders WHERE id = 2", DROPPED)
    async with story(guest, url=guest.owner, positions=before.positions) as told:
        pass

    assert keys_of(before)[-1] == ("id",)
    assert keys_of(told) == [("id",)]


@pytest.mark.parametrize("accident", [DROPPED, RENAMED, GIVEN_A_KEY])
async def test_a_table_that_had_no_key_goes_on_without(guest: Guest, accident: str) -> None:
    guest.execute(*KEYLESS)
    async with story(guest, url=guest.owner) as before:
        pass

    guest.execute("DELETE FROM orders WHERE id = 2", accident)
    async with story(guest, url=guest.owner, positions=before.positions) as told:
        pass

    assert keys_of(told) == [()]


async def test_a_position_of_an_older_version_leaves_out_nothing_of_a_table_without_a_key(
    guest: Guest,
) -> None:
    guest.execute(*KEYLESS)
    async with story(guest, url=guest.owner) as before:
        pass

    guest.execute("DELETE FROM orders WHERE id = 2", RENAMED)
    async with story(guest, url=guest.owner, positions=without_keys(before)) as told:
        pass

    assert keys_of(told) == [()]


async def test_a_position_of_an_older_version_has_a_table_that_got_a_key_read_again(
    guest: Guest,
) -> None:
    guest.execute(*KEYLESS)
    async with story(guest, url=guest.owner) as before:
        pass

    guest.execute("DELETE FROM orders WHERE id = 2", GIVEN_A_KEY)
    async with story(guest, url=guest.owner, positions=without_keys(before)) as told:
        pass

    assert TableSnapshotProgress.parse(told.positions[part_of(TableId("public", "orders"))]).reread


async def test_changes_of_a_dropped_table_whose_key_nobody_knows_are_left_out(
    guest: Guest, caplog: pytest.LogCaptureFixture
) -> None:
    guest.execute(*KEYED)
    async with story(guest, url=guest.owner) as before:
        pass

    guest.execute(
        "DELETE FROM orders WHERE id = 2",
        "ALTER TABLE orders ADD city text",
        "DELETE FROM orders WHERE id = 3",
        DROPPED,
        "INSERT INTO emptied VALUES (1, 'later')",
    )
    with caplog.at_level(logging.WARNING):
        async with story(guest, url=guest.owner, positions=without_keys(before)) as told:
            pass

    said = [each for each in caplog.messages if "public.orders are left out" in each]
    assert {each.schema.table.name for each in told.tables} == {"emptied"}
    assert len(said) == 1


async def test_a_table_whose_key_nobody_knows_is_read_again(
    guest: Guest,
) -> None:
    guest.execute(*KEYED)
    async with story(guest, url=guest.owner) as before:
        pass

    guest.execute("DELETE FROM orders WHERE id = 2", OF_ANOTHER_SHAPE)
    async with story(guest, url=guest.owner, positions=without_keys(before)) as held:
        pass
    async with story(guest, url=guest.owner, positions=held.positions) as told:
        await told.tell("UPDATE orders SET note = 'second' WHERE nr = 1")
        await told.until(Phase.STARTED)

    assert keys_of(held) == [] and set(keys_of(told)) == {("nr",)}
    assert TableSnapshotProgress.parse(
        held.positions[part_of(TableId("public", "orders"))]
    ).has_left


def keys_of(told: Story) -> list[tuple[str, ...]]:
    """Of each piece of changes of orders."""
    return [each.schema.key for each in told.tables if each.schema.table.name == "orders"]


def without_keys(told: Story) -> dict[str, str]:
    """The position as it was written before keys stood in it."""
    assert PART in told.positions
    return {part: text for part, text in told.positions.items() if part != PART}


def rows_of_emptied(directory: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(directory / "shop.db")) as target:
        return target.execute("SELECT id, note FROM emptied").fetchall()
