"""A change of a table that its stream does not bring is found, and the table read again."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from tests.connectors.postgres.snapshot.table_log import Folded, in_table, live, until_equal
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest

ROWS = 120
CREATE = (
    "CREATE TYPE mood AS ENUM ('sad', 'fine')",
    "CREATE TABLE items (id int PRIMARY KEY, a text, b int, m mood DEFAULT 'sad')",
    f"INSERT INTO items SELECT i, 'a' || i, i, 'fine' FROM generate_series(1, {ROWS}) i",
)
PARTITIONED = (
    "CREATE TABLE items (id int PRIMARY KEY, a text, b int) PARTITION BY RANGE (id)",
    "CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (0) TO (60)",
    "CREATE TABLE items_2 PARTITION OF items FOR VALUES FROM (60) TO (1000)",
    f"INSERT INTO items SELECT i, 'a' || i, i FROM generate_series(1, {ROWS}) i",
)

READ_AGAIN: dict[str, Sequence[str]] = {
    "rewritten": ["ALTER TABLE items ALTER a TYPE text USING upper(a)"],
    "another type": ["ALTER TABLE items ALTER b TYPE text USING 'b' || b"],
    "a wider type": ["ALTER TABLE items ALTER b TYPE bigint USING b * 2"],
    "a volatile default": ["ALTER TABLE items ADD c float DEFAULT random()"],
    "names exchanged": [
        "ALTER TABLE items RENAME a TO c",
        "ALTER TABLE items ADD a text DEFAULT 'x'",
    ],
    "dropped and added": ["ALTER TABLE items DROP a", "ALTER TABLE items ADD a text"],
    "an enum label": ["ALTER TYPE mood RENAME VALUE 'fine' TO 'good'"],
}
IN_PLACE: dict[str, Sequence[str]] = {
    "a default": ["ALTER TABLE items ADD c int DEFAULT 7"],
    "renamed": ["ALTER TABLE items RENAME a TO c"],
}
PARTITIONS: dict[str, Sequence[str]] = {
    "detached": ["ALTER TABLE items DETACH PARTITION items_1"],
    "dropped": ["DROP TABLE items_1"],
    "truncated": ["TRUNCATE items_1"],
    "attached": [
        "CREATE TABLE items_3 (id int PRIMARY KEY, a text, b int)",
        "INSERT INTO items_3 VALUES (2000, 'late', 1)",
        "ALTER TABLE items ATTACH PARTITION items_3 FOR VALUES FROM (2000) TO (3000)",
    ],
    "attached at once": [
        "CREATE TABLE items_3 (id int PRIMARY KEY, a text, b int);"
        "INSERT INTO items_3 VALUES (2000, 'late', 1);"
        "ALTER TABLE items ATTACH PARTITION items_3 FOR VALUES FROM (2000) TO (3000)",
    ],
}
FOLLOWED: dict[str, Sequence[str]] = {
    "a column that may be null": ["ALTER TABLE items ADD c int"],
    "a column that went": ["ALTER TABLE items DROP b"],
    "a longer text": ["ALTER TABLE items ALTER a TYPE varchar"],
    "written anew as it was": ["VACUUM FULL items"],
    "statistics": ["ALTER TABLE items ALTER a SET STATISTICS 500"],
}


def create(guest: Guest, statements: Sequence[str]) -> None:
    guest.execute(*statements)
    guest.publish("items")


def source_of(guest: Guest, **settings: Any) -> PostgresSource:
    given = {
        "url": guest.url,
        "tables": ["public.items"],
        "snapshot": {"chunk_rows": 50},
        "heartbeat": "200ms",
        **settings,
    }
    context = replace(source_context(), settle_ms=0)
    return PostgresSource(PostgresSettings.model_validate(given), context)


def as_now(folded: Folded, guest: Guest) -> list[dict[str, Any]]:
    """Rows of the log with the columns of now, null where they lack one."""
    names = [
        name
        for [name] in guest.rows(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'items'::regclass"
            " AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
    ]
    rows = [{name: row.get(name) for name in names} for row in folded.rows("items")]
    return sorted(rows, key=repr)


@pytest.mark.parametrize("name", READ_AGAIN)
async def test_a_table_altered_while_nobody_looked_is_read_again(guest: Guest, name: str) -> None:
    create(guest, CREATE)
    folded = Folded()
    await until_equal(folded, guest, tables=["public.items"])
    folded.reads.clear()

    guest.execute(*READ_AGAIN[name])
    await until_equal(folded, guest, tables=["public.items"])

    assert folded.rows("items") == in_table(guest, "items")
    assert len(folded.reads) == ROWS
    assert folded.truncates == 0


@pytest.mark.parametrize("name", PARTITIONS)
async def test_a_partition_that_came_or_went_is_noticed(guest: Guest, name: str) -> None:
    create(guest, PARTITIONED)
    folded = Folded()
    await until_equal(folded, guest, tables=["public.items"])

    guest.execute(*PARTITIONS[name])
    await until_equal(folded, guest, tables=["public.items"])

    assert folded.rows("items") == in_table(guest, "items")
    assert folded.truncates == 0


async def test_a_partition_that_was_made_empty_costs_no_reading(guest: Guest) -> None:
    create(guest, PARTITIONED)
    folded = Folded()
    await until_equal(folded, guest, tables=["public.items"])
    folded.reads.clear()

    guest.execute(
        "CREATE TABLE items_3 PARTITION OF items FOR VALUES FROM (2000) TO (3000)",
        "INSERT INTO items VALUES (2000, 'late', 1)",
    )
    await until_equal(folded, guest, tables=["public.items"])

    assert folded.rows("items") == in_table(guest, "items")
    assert not folded.reads


@pytest.mark.parametrize("name", FOLLOWED)
async def test_a_change_that_the_stream_brings_costs_no_reading(guest: Guest, name: str) -> None:
    create(guest, CREATE)
    folded = Folded()
    await until_equal(folded, guest, tables=["public.items"])
    folded.reads.clear()

    guest.execute(*FOLLOWED[name], "INSERT INTO items (id) VALUES (1000)")
    await until_equal(folded, guest, tables=["public.items"])

    assert as_now(folded, guest) == in_table(guest, "items")
    assert not folded.reads


@pytest.mark.parametrize("name", ["rewritten", "another type"])
async def test_a_table_altered_while_it_is_followed_is_read_again(guest: Guest, name: str) -> None:
    """Without any change of a row behind it, and with some."""
    create(guest, CREATE)
    folded = Folded()
    await until_equal(folded, guest, tables=["public.items"])
    await live_until_equal(folded, guest, *READ_AGAIN[name])

    await live_until_equal(folded, guest, "UPDATE items SET b = b WHERE id < 10")


async def live_until_equal(folded: Folded, guest: Guest, *statements: str) -> None:
    """The source runs, the statements are executed, and the log comes to equal the table."""
    source = source_of(guest)
    told = False
    async with aclosing(source.changes(dict(folded.positions))) as batches:
        async for batch in batches:
            folded.take(batch)
            if not told:
                await guest.run(*statements)
                told = True
            if folded.rows("items") == in_table(guest, "items") and not folded.renewed:
                break
    folded.killed()


@pytest.mark.parametrize("batches", [2, 3])
async def test_a_reading_that_is_killed_goes_on(guest: Guest, batches: int) -> None:
    create(guest, PARTITIONED)
    folded = Folded()
    await until_equal(folded, guest, tables=["public.items"])
    guest.execute("ALTER TABLE items ALTER a TYPE text USING upper(a)", "DROP TABLE items_1")

    for _ in range(2):
        await live(folded, source_of(guest), batches=batches)
        guest.execute("UPDATE items SET b = b + 1 WHERE id % 7 = 0")
    await until_equal(folded, guest, tables=["public.items"])

    assert folded.rows("items") == in_table(guest, "items")
