"""A renamed column, and one that was added with a value, need no row but one to be in the log."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
import pytest

from headwater.connectors.postgres.schema_history.table_definition import (
    Attribute,
    LeafForm,
    TableForm,
    why_read_again,
)
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.snapshot.table_log import Folded, in_table, live
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest

ROWS = 60
CREATE = (
    "CREATE TYPE mood AS ENUM ('sad', 'it''s {fine}, \"is\\ it')",
    "CREATE TABLE items (id int PRIMARY KEY, a text, b int, n text)",
    f"INSERT INTO items SELECT i, 'a' || i, i, 'n' || i FROM generate_series(1, {ROWS}) i",
)
PARTITIONED = (
    "CREATE TABLE items (id int PRIMARY KEY, a text, b int, n text) PARTITION BY RANGE (id)",
    "CREATE TABLE items_1 (n text, gone int, b int, a text, id int PRIMARY KEY)",
    "ALTER TABLE items_1 DROP gone",
    "ALTER TABLE items ATTACH PARTITION items_1 FOR VALUES FROM (0) TO (30)",
    "CREATE TABLE items_2 PARTITION OF items FOR VALUES FROM (30) TO (1000)",
    f"INSERT INTO items SELECT i, 'a' || i, i, 'n' || i FROM generate_series(1, {ROWS}) i",
)
SWAP = (
    "ALTER TABLE items RENAME a TO between",
    "ALTER TABLE items RENAME n TO a",
    "ALTER TABLE items RENAME between TO n",
)
IN_PLACE: dict[str, Sequence[str]] = {
    "a renamed column": ["ALTER TABLE items RENAME a TO c"],
    "an added number": ["ALTER TABLE items ADD c int DEFAULT 7"],
    "an added text": [r"""ALTER TABLE items ADD c text DEFAULT E'a, "b" \\ {c}\nNULL'"""],
    "an added empty text": ["ALTER TABLE items ADD c text DEFAULT ''"],
    "an added NULL in letters": ["ALTER TABLE items ADD c text DEFAULT 'NULL'"],
    "an added decimal": ["ALTER TABLE items ADD c numeric(12,3) DEFAULT -0.125"],
    "an added truth": ["ALTER TABLE items ADD c boolean DEFAULT true"],
    "several statements": [
        "ALTER TABLE items RENAME a TO c",
        "ALTER TABLE items ADD d int DEFAULT 7",
        "ALTER TABLE items RENAME d TO e",
        "ALTER TABLE items DROP b",
        "ALTER TABLE items ADD f text DEFAULT 'f'",
    ],
    "names that change places": SWAP,
    "a type that holds the same text": [
        "ALTER TABLE items ALTER a TYPE varchar",
        "ALTER TABLE items RENAME a TO c",
    ],
}
VALUES = {
    "date": "'2024-02-29'",
    "uuid": "'11111111-2222-3333-4444-555555555555'",
    "jsonb": """'{"x": [1, "y, {}"]}'""",
    "timestamptz": "now()",
    "timestamp(3)": "'2024-02-29 23:59:59.125'",
    "interval": "'1 year 2 days 00:00:03.5'",
    "numeric": "12345678901234567890.5",
    "real": "0.1",
    "double precision": "1e-300",
    "inet": "'10.0.0.1/8'",
    "varchar(9)": "'a b'",
    "char(4)": "'a'",
    "mood": "'sad'",
}
READ_AGAIN: dict[str, Sequence[str]] = {
    "a list, which no schema stores": ["ALTER TABLE items ADD c int[] DEFAULT '{1,2}'"],
    "a value that is gone from the catalog": [
        "ALTER TABLE items ADD c int DEFAULT 7",
        "VACUUM FULL items",
    ],
    "a renamed column with other values": [
        "ALTER TABLE items RENAME a TO c",
        "ALTER TABLE items ALTER c TYPE text USING upper(c)",
    ],
    "a renamed column of another type": [
        "ALTER TABLE items RENAME b TO c",
        "ALTER TABLE items ALTER c TYPE bigint",
    ],
    "another column of the same name": [
        "ALTER TABLE items RENAME a TO c",
        "ALTER TABLE items ADD a text DEFAULT 'x'",
    ],
}
WRITES = (
    "UPDATE items SET b = b + 1000 WHERE id % 7 = 0",
    "DELETE FROM items WHERE id % 11 = 0",
    f"INSERT INTO items (id) VALUES ({ROWS + 1})",
)


def create(guest: Guest, statements: Sequence[str] = CREATE) -> None:
    guest.execute(*statements)
    guest.publish("items")


def source_of(guest: Guest, *, until_end: bool = True, **context: Any) -> PostgresSource:
    settings = {
        "url": guest.url,
        "tables": ["public.items"],
        "snapshot": {"chunk_rows": 20},
        "heartbeat": "200ms",
    }
    told = replace(source_context(until_end=until_end), settle_ms=0, **context)
    return PostgresSource(PostgresSettings.model_validate(settings), told)


async def until_equal(folded: Folded, guest: Guest, **context: Any) -> None:
    await live(folded, source_of(guest, **context))


async def captured(guest: Guest, statements: Sequence[str] = CREATE) -> Folded:
    create(guest, statements)
    folded = Folded()
    await until_equal(folded, guest)
    folded.reads.clear()
    return folded


def rows_of(folded: Folded, guest: Guest) -> list[dict[str, Any]]:
    """Returns the log's rows, without columns that were dropped: older records keep them."""
    [[names]] = guest.rows(
        "SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = 'items'::regclass"
        " AND attnum > 0 AND NOT attisdropped"
    )
    rows = folded.rows("items")
    found = [{name: value for name, value in row.items() if name in names} for row in rows]
    return sorted(found, key=repr)


@pytest.mark.parametrize("name", IN_PLACE)
async def test_one_row_is_read_after_a_change_while_nobody_looked(guest: Guest, name: str) -> None:
    folded = await captured(guest)

    guest.execute(*IN_PLACE[name])
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert len(folded.reads) == 1
    assert not folded.replacements


@pytest.mark.parametrize("kind", VALUES)
async def test_older_rows_have_the_value_that_a_row_has_when_it_is_read(
    guest: Guest, kind: str
) -> None:
    folded = await captured(guest)

    guest.execute(f"ALTER TABLE items ADD c {kind} DEFAULT {VALUES[kind]}")
    await until_equal(folded, guest)

    values = [row["c"] for row in folded.rows("items")]
    assert len(folded.reads) == 1
    assert values == values[:1] * ROWS
    assert values[0] is not None


@pytest.mark.parametrize("name", READ_AGAIN)
async def test_all_rows_are_read_where_two_explanations_are_possible(
    guest: Guest, name: str
) -> None:
    folded = await captured(guest)

    guest.execute(*READ_AGAIN[name])
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert len(folded.reads) == ROWS


@pytest.mark.parametrize("name", ["a renamed column", "an added number", "several statements"])
async def test_one_row_is_read_of_a_partitioned_table(guest: Guest, name: str) -> None:
    folded = await captured(guest, PARTITIONED)

    guest.execute(*IN_PLACE[name])
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert len(folded.reads) == 1


async def test_partitions_with_other_values_are_read_again(guest: Guest) -> None:
    folded = await captured(guest, PARTITIONED)

    guest.execute(
        "ALTER TABLE items DETACH PARTITION items_1",
        "ALTER TABLE items ADD c int DEFAULT 7",
        "ALTER TABLE items_1 ADD c int DEFAULT 8",
        "ALTER TABLE items ATTACH PARTITION items_1 FOR VALUES FROM (0) TO (30)",
    )
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert len(folded.reads) == ROWS


@pytest.mark.parametrize("tables", [CREATE, PARTITIONED], ids=["plain", "partitioned"])
async def test_changes_of_rows_between_forms_keep_their_values(
    guest: Guest, tables: Sequence[str]
) -> None:
    """The source is behind, and sees only what became of the table in the end."""
    folded = await captured(guest, tables)

    guest.execute(
        "UPDATE items SET a = 'before' WHERE id = 3",
        "ALTER TABLE items RENAME a TO c",
        "UPDATE items SET c = 'between' WHERE id = 4",
        "ALTER TABLE items ADD d int DEFAULT 7",
        *WRITES,
        "UPDATE items SET d = 8 WHERE id = 5",
        "ALTER TABLE items RENAME c TO e",
        "ALTER TABLE items RENAME d TO c",
        "UPDATE items SET c = 9, e = 'behind' WHERE id = 6",
    )
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert len(folded.reads) == 1


async def test_a_name_of_the_meantime_is_gone_without_another_change(guest: Guest) -> None:
    folded = await captured(guest)

    guest.execute(
        "ALTER TABLE items RENAME a TO c",
        "UPDATE items SET c = 'between' WHERE id = 4",
        "ALTER TABLE items RENAME c TO a",
    )
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert len(folded.reads) <= 1


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
async def test_a_source_that_is_killed_brings_the_row_in_its_next_life(
    guest: Guest, batches: int
) -> None:
    folded = await captured(guest)
    guest.execute(
        "ALTER TABLE items RENAME a TO c",
        "UPDATE items SET c = 'between' WHERE id = 4",
        "ALTER TABLE items RENAME c TO a",
        "ALTER TABLE items ADD d int DEFAULT 7",
    )

    await live(folded, source_of(guest), batches=batches)
    guest.execute("ALTER TABLE items RENAME d TO e")
    await live(folded, source_of(guest), batches=batches)
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert len(folded.reads) <= 3


async def test_a_source_that_runs_follows_each_statement(guest: Guest) -> None:
    folded = await captured(guest)
    steps = [
        ["ALTER TABLE items RENAME a TO c"],
        ["ALTER TABLE items ADD d int DEFAULT 7"],
        WRITES,
        ["ALTER TABLE items RENAME d TO e", "UPDATE items SET e = e + 1"],
        SWAP_OF_C,
    ]

    async with aclosing(source_of(guest, until_end=False).changes(folded.positions)) as batches:
        for statements in steps:
            await guest.run(*statements)
            while rows_of(folded, guest) != in_table(guest, "items"):
                folded.take(await anext(batches))

    assert len(folded.reads) <= 4
    assert not folded.replacements


SWAP_OF_C = tuple(each.replace(" a ", " c ").replace("TO a", "TO c") for each in SWAP)


async def test_a_row_that_changes_all_the_time_is_not_needed(guest: Guest) -> None:
    create(guest, (*CREATE, "DELETE FROM items WHERE id > 1"))
    folded = Folded()
    await until_equal(folded, guest)
    ends = asyncio.Event()

    async def write() -> None:
        while not ends.is_set():
            await guest.run("UPDATE items SET b = b + 1")

    writing = asyncio.ensure_future(write())
    async with aclosing(source_of(guest, until_end=False).changes(folded.positions)) as batches:
        await guest.run("ALTER TABLE items ADD c int DEFAULT 7")
        while "follows" in folded.positions["snapshot/public.items"] or (
            "c" not in folded.rows("items")[0]
        ):
            folded.take(await anext(batches))
        ends.set()
        await writing
    folded.killed()
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")


async def test_an_empty_table_has_no_row_to_read(guest: Guest) -> None:
    folded = await captured(guest)

    guest.execute("TRUNCATE items", "ALTER TABLE items ADD c int DEFAULT 7")
    await until_equal(folded, guest)
    guest.execute("INSERT INTO items VALUES (1)")
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert not folded.reads


async def test_a_log_without_ids_is_read_again_once(guest: Guest) -> None:
    """An older version has written it."""
    folded = await captured(guest)
    part = "snapshot/public.items"
    said = orjson.loads(folded.positions[part])
    del said["ids"]
    folded.positions[part] = orjson.dumps(said).decode()

    reads = []
    for statement in ("RENAME a TO c", "RENAME c TO d"):
        guest.execute(f"ALTER TABLE items {statement}")
        await until_equal(folded, guest)
        assert rows_of(folded, guest) == in_table(guest, "items")
        reads.append(len(folded.reads))

    assert reads == [ROWS, ROWS + 1]


async def test_a_table_without_a_key_is_read_again(guest: Guest) -> None:
    folded = await captured(guest, (*CREATE, "ALTER TABLE items DROP CONSTRAINT items_pkey"))

    guest.execute("ALTER TABLE items RENAME a TO c")
    await until_equal(folded, guest)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert len(folded.reads) == ROWS


def no_target_follows(table: TableId, names: Collection[str]) -> bool:
    return False


@pytest.mark.parametrize(
    "context",
    [{"follows_columns": no_target_follows}, {"schema_changes": {"drop_column": "ignore"}}],
    ids=["merged or computed", "ignored"],
)
async def test_rows_are_read_where_a_target_needs_them(
    guest: Guest, context: dict[str, Any]
) -> None:
    folded = await captured(guest)

    guest.execute("ALTER TABLE items RENAME a TO c")
    await until_equal(folded, guest, **context)

    assert rows_of(folded, guest) == in_table(guest, "items")
    assert len(folded.reads) == ROWS


def test_a_value_that_the_catalog_loses_before_the_log_has_it_is_read() -> None:
    leaf = LeafForm(1, True, ())
    key = Attribute(1, "id", 23, -1, 700, None, False, None)
    added = Attribute(2, "c", 23, -1, 701, "{7}", False, None)
    then = TableForm(5, False, "p", False, {5: leaf}, (1,), True, (key, added))
    columns = (key, added._replace(missing=None))
    now = replace(then, attributes=columns, leaves={5: leaf._replace(filenode=2)})

    cause = why_read_again(then, now, is_announced=False)

    assert cause.why
    assert not cause.is_in_place
    assert not why_read_again(then, now).why
