"""A label that rows have is followed through its names, whenever the catalog is looked at."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from headwater.connectors.postgres.schema_history.enum_labels import (
    EnumLabel,
    certain_names,
    is_older,
    may_have_changed,
)
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.connectors.source import Remark, SourceReport
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    in_table,
    live,
    source_of,
    until_equal,
)
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest

ROWS = 20
CREATE = (
    "CREATE TYPE mood AS ENUM ('sad', 'fine')",
    "CREATE DOMAIN humour AS mood",
    "CREATE TYPE pair AS (n int, m mood)",
    "CREATE TYPE span AS RANGE (subtype = mood)",
    "CREATE TABLE items (id int PRIMARY KEY, m mood, l mood[], g mood[][], d humour)",
    f"INSERT INTO items (id, m) SELECT i, 'fine' FROM generate_series(1, {ROWS}) i",
)
NESTED = "ALTER TABLE items ADD c pair, ADD s span, ADD x span_multirange"
ADD, RENAME = "ALTER TYPE mood ADD VALUE 'new'", "ALTER TYPE mood RENAME VALUE 'new' TO 'other'"
ADD_AND_RENAME: dict[str, Sequence[str]] = {
    "alone": [ADD, "INSERT INTO items (id, m) VALUES (100, 'new')", RENAME],
    "of a list": [ADD, "INSERT INTO items (id, l) VALUES (100, '{sad,new}')", RENAME],
    "of lists": [ADD, "INSERT INTO items (id, g) VALUES (100, '{{sad},{new}}')", RENAME],
    "of a domain": [ADD, "INSERT INTO items (id, d) VALUES (100, 'new')", RENAME],
    "of a field": [ADD, "INSERT INTO items (id, c) VALUES (100, '(1,new)')", RENAME],
    "of a range": [ADD, "INSERT INTO items (id, s) VALUES (100, '[sad,new]')", RENAME],
    "of ranges": [ADD, "INSERT INTO items (id, x) VALUES (100, '{[sad,new]}')", RENAME],
    "in the place of another one": [
        ADD,
        "INSERT INTO items (id, m) VALUES (100, 'new')",
        RENAME,
        ADD,
        "INSERT INTO items (id, m) VALUES (101, 'new')",
    ],
    "and back": [
        "ALTER TYPE mood RENAME VALUE 'fine' TO 'good'",
        "UPDATE items SET m = m WHERE id = 1",
        "ALTER TYPE mood RENAME VALUE 'good' TO 'fine'",
    ],
    "names exchanged, and back": [
        "ALTER TYPE mood RENAME VALUE 'fine' TO 'b'; ALTER TYPE mood RENAME VALUE 'sad' TO 'fine';"
        " ALTER TYPE mood RENAME VALUE 'b' TO 'sad'",
        "UPDATE items SET m = m WHERE id = 1",
        "ALTER TYPE mood RENAME VALUE 'fine' TO 'b'; ALTER TYPE mood RENAME VALUE 'sad' TO 'fine';"
        " ALTER TYPE mood RENAME VALUE 'b' TO 'sad'",
    ],
    "of a new column": [
        "CREATE TYPE size AS ENUM ('small')",
        "ALTER TABLE items ADD z size",
        "UPDATE items SET z = 'small' WHERE id = 1",
        "ALTER TYPE size RENAME VALUE 'small' TO 'little'",
    ],
    "of a new column, in the place of another one": [
        "CREATE TYPE size AS ENUM ('small')",
        "ALTER TABLE items ADD z size",
        "UPDATE items SET z = 'small' WHERE id = 1",
        "ALTER TYPE size RENAME VALUE 'small' TO 'little'",
        "ALTER TYPE size ADD VALUE 'small'",
    ],
    "fields of a new column": [
        "CREATE TYPE place AS (x int)",
        "ALTER TABLE items ADD p place",
        "UPDATE items SET p = '(1)' WHERE id = 1",
        "ALTER TYPE place ADD ATTRIBUTE y int",
    ],
    "fields, and back": [
        "ALTER TYPE pair ADD ATTRIBUTE y int",
        "UPDATE items SET c = '(1,sad,2)' WHERE id = 1",
        "ALTER TYPE pair DROP ATTRIBUTE y",
    ],
}
FOLLOWED: dict[str, Sequence[str]] = {
    "a label": [ADD, "INSERT INTO items (id, m, l) VALUES (100, 'new', '{new}')"],
    "several labels at once": [
        f"{ADD}; ALTER TYPE mood ADD VALUE 'newer'",
        "INSERT INTO items (id, m) VALUES (100, 'newer')",
    ],
    "a new type": [
        "CREATE TYPE size AS ENUM ('small', 'large')",
        "ALTER TABLE items ADD z size, ADD p pair",
        "INSERT INTO items (id, z, p) VALUES (100, 'large', '(1,sad)')",
    ],
}


async def started(guest: Guest, *more: str) -> Folded:
    guest.execute(*CREATE, *more)
    guest.publish("items")
    folded = Folded()
    await until_equal(folded, guest, heartbeat="200ms")
    folded.reads.clear()
    return folded


def quick_source(guest: Guest) -> PostgresSource:
    """Nothing waits, and the catalog is looked at once in an hour, unless the stream asks."""
    settings = {"url": guest.url, "tables": ["public.*"], "heartbeat": "1h"}
    context = replace(source_context(), settle_ms=0)
    return PostgresSource(PostgresSettings.model_validate(settings), context)


def there(guest: Guest) -> list[dict[str, Any]]:
    """Returns the table's rows without nulls; values of composite types are texts in the log."""
    columns = guest.value(
        "SELECT string_agg(format(CASE typtype WHEN 'c' THEN '%1$I::text' ELSE '%1$I' END,"
        " attname), ', ' ORDER BY attnum) FROM pg_attribute JOIN pg_type t ON t.oid = atttypid"
        " WHERE attrelid = 'items'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    return without_nulls(in_table(guest, f"(SELECT {columns} FROM items)"))


def without_nulls(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: each for name, each in row.items() if each is not None} for row in rows]


@pytest.mark.parametrize("name", ADD_AND_RENAME)
async def test_a_label_renamed_before_anybody_looked_has_its_new_name(
    guest: Guest, name: str
) -> None:
    is_nested = "field" in name or "range" in name  # a new label is read again in such columns
    folded = await started(guest, *([NESTED] if is_nested else []))

    guest.execute(*ADD_AND_RENAME[name])
    await until_equal(folded, guest, heartbeat="200ms")

    assert without_nulls(folded.rows("items")) == there(guest)
    assert len(folded.reads) >= ROWS


@pytest.mark.parametrize("name", FOLLOWED)
async def test_a_new_label_costs_no_reading(guest: Guest, name: str) -> None:
    folded = await started(guest)

    guest.execute(*FOLLOWED[name])
    await until_equal(folded, guest, heartbeat="200ms")

    assert without_nulls(folded.rows("items")) == there(guest)
    assert not folded.reads


async def test_a_label_renamed_while_the_source_runs_has_its_new_name(guest: Guest) -> None:
    """No heartbeat looks in between."""
    folded = await started(guest)

    is_told = False
    guest.execute("INSERT INTO items (id) VALUES (50)")  # so that a batch comes
    source = quick_source(guest)
    async with aclosing(source.changes(dict(folded.positions))) as batches:
        async for batch in batches:
            folded.take(batch)
            if not is_told:
                is_told = True
                await guest.run(*ADD_AND_RENAME["alone"])
            if without_nulls(folded.rows("items")) == there(guest) and not folded.renewed:
                break

    assert "items" in folded.replaced


@pytest.mark.parametrize("column", ["m", "l"])
async def test_a_label_renamed_after_a_kill_has_its_new_name(guest: Guest, column: str) -> None:
    """Rows with its first name are stored, and the position is older than the look that found
    it."""
    folded = await started(guest)
    value = "new" if column == "m" else "{new}"

    is_told = False
    guest.execute("INSERT INTO items (id) VALUES (50)")  # so that a batch comes
    source = quick_source(guest)
    async with aclosing(source.changes(dict(folded.positions))) as batches:
        async for batch in batches:
            folded.take(batch)
            if not is_told:
                is_told = True
                await guest.run(
                    ADD,
                    f"INSERT INTO items (id, {column}) VALUES (100, '{value}')",
                    "CREATE TABLE other (id int)",  # so that the look is at a later position
                )
            if (100,) in folded.tables["items"]:
                break
    folded.killed()
    guest.until_nobody_streams()
    guest.execute(RENAME)
    await until_equal(folded, guest, heartbeat="200ms")

    assert without_nulls(folded.rows("items")) == there(guest)


async def test_a_label_that_came_while_the_slot_was_made_is_followed(guest: Guest) -> None:
    guest.execute(*CREATE)
    guest.publish("items")
    folded, is_waiting = Folded(), asyncio.Event()

    def report(each: SourceReport) -> None:
        if isinstance(each, Remark) and each.finding is not None:
            is_waiting.set()

    with psycopg.connect(guest.owner) as late:
        late.execute("INSERT INTO items (id, m) VALUES (99, 'sad')")
        reading = asyncio.ensure_future(live(folded, source_of(guest, report=report), batches=2))
        await is_waiting.wait()
        await guest.run(ADD, "INSERT INTO items (id, m) VALUES (100, 'new')")
        late.commit()
    await reading
    guest.until_nobody_streams()
    guest.execute(RENAME)
    await until_equal(folded, guest, heartbeat="200ms")

    assert without_nulls(folded.rows("items")) == there(guest)


def test_labels_of_several_transactions_may_have_exchanged_their_names() -> None:
    known = {"1": EnumLabel("sad", 700), "2": EnumLabel("fine", 700)}
    one = {**known, "3": EnumLabel("new", 710)}
    two = {**one, "5": EnumLabel("newer", 711)}
    together = {**one, "5": EnumLabel("newer", 710)}

    assert certain_names(known, one, 0) == {"sad", "fine", "new"}
    assert certain_names(known, two, 0) == {"sad", "fine"}
    assert certain_names(known, two, 711) == {"sad", "fine", "new", "newer"}
    assert certain_names(known, together, 0) == {"sad", "fine", "new", "newer"}
    assert certain_names({"1": EnumLabel("sad", None)}, known, 0) == {"sad", "fine"}


def test_transactions_are_older_across_a_wraparound() -> None:
    assert is_older(700, 701)
    assert not is_older(701, 701)
    assert not is_older(700, 0)
    assert is_older(4_000_000_000, (1 << 32) + 5)
    assert not is_older(5, 4_000_000_000)
    assert is_older(2, 5)


def test_a_type_that_one_transaction_made_was_never_another_one() -> None:
    assert not may_have_changed([[2, 710]], 700)
    assert not may_have_changed([[2, 690, 695]], 700)
    assert may_have_changed([[2, 690, 710]], 700)
    assert may_have_changed([[710], [2, 711]], 700)
