"""A table may change its form in the middle of the stream."""

import asyncio
from contextlib import aclosing
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.connectors.postgres import follower
from headwater.connectors.postgres.catalog import Catalog
from headwater.connectors.postgres.schema_history.table_definition import OTHER_KEY
from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress
from headwater.connectors.postgres.types.type_map import TypeMap
from headwater.core_log.foundation.errors import SourceUnavailable
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import TableSchema
from tests.budget import PATIENCE_S
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    differing,
    source_of,
    until_equal,
)
from tests.connectors.postgres.source_session import Story, short, story
from tests.databases import Guest


def schema_of(told: Story) -> TableSchema:
    """Of the newest changes."""
    return told.tables[-1].schema


async def started(guest: Guest, told: Story) -> None:
    await told.tell("INSERT INTO people VALUES (1, 'Ann')")


def create(guest: Guest) -> None:
    guest.execute("CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL)")
    guest.publish("people")


async def test_a_column_that_is_added_is_there_from_then_on(guest: Guest) -> None:
    create(guest)
    async with story(guest) as told:
        events = await told.tell(
            "INSERT INTO people VALUES (1, 'Ann')",
            "ALTER TABLE people ADD age int DEFAULT 7, ADD seen timestamptz",
            "INSERT INTO people (id, name) VALUES (2, 'Ben')",
        )

    assert short(events) == [
        ("c", {"id": 1, "name": "Ann"}),
        ("c", {"id": 2, "name": "Ben", "age": 7, "seen": None}),
    ]
    assert [schema.names for schema in schemas(told)] == [
        ("id", "name"), ("id", "name", "age", "seen"),
    ]  # fmt: skip


async def test_a_column_that_is_dropped_is_gone(guest: Guest) -> None:
    create(guest)
    async with story(guest) as told:
        events = await told.tell(
            "INSERT INTO people VALUES (1, 'Ann')",
            "ALTER TABLE people DROP name",
            "INSERT INTO people VALUES (2)",
        )

    assert [row for _, row in short(events)] == [{"id": 1, "name": "Ann"}, {"id": 2}]


async def test_a_renamed_column_has_its_new_name(guest: Guest) -> None:
    create(guest)
    async with story(guest) as told:
        events = await told.tell(
            "INSERT INTO people VALUES (1, 'Ann')",
            "ALTER TABLE people RENAME name TO first_name",
            "UPDATE people SET first_name = 'Anna'",
        )

    assert [row for _, row in short(events)] == [
        {"id": 1, "name": "Ann"}, {"id": 1, "first_name": "Anna"},
    ]  # fmt: skip


async def test_a_column_of_another_type_is_read_as_such(guest: Guest) -> None:
    guest.execute("CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL, n int)")
    guest.publish("people")
    async with story(guest) as told:
        events = await told.tell(
            "INSERT INTO people VALUES (1, 'Ann', 5)",
            "ALTER TABLE people ALTER n TYPE numeric(8,2)",
            "ALTER TABLE people ALTER n TYPE text",
            "INSERT INTO people VALUES (2, 'Ben', 'five')",
        )

    assert [row["n"] for _, row in short(events)] == [5, "five"]
    assert [schema.column("n").type for schema in schemas(told)] == [pa.int32(), pa.string()]


async def test_rows_from_before_a_column_had_to_be_filled_may_lack_it(guest: Guest) -> None:
    """The stream is older than the catalogue, which already says that no row lacks it."""
    guest.execute("CREATE TABLE people (id int PRIMARY KEY, name text)")
    guest.publish("people")
    async with story(guest) as told:
        events = await told.tell(
            "INSERT INTO people VALUES (1, NULL)",
            "DELETE FROM people",
            "ALTER TABLE people ADD extra int, ALTER name SET NOT NULL",
            "INSERT INTO people VALUES (2, 'Ben', 1)",
            "UPDATE people SET extra = NULL",
            "DELETE FROM people",
            "ALTER TABLE people ALTER extra SET NOT NULL",
        )

    assert [operation for operation, _ in short(events)] == ["c", "d", "c", "u", "d"]
    assert schema_of(told).key == ("id",)


async def test_a_new_label_of_an_enum_is_among_those_allowed(guest: Guest) -> None:
    guest.execute(
        "CREATE TYPE mood AS ENUM ('fine')", "CREATE TABLE people (id int PRIMARY KEY, m mood)"
    )
    guest.publish("people")
    async with story(guest) as told:
        await told.tell("INSERT INTO people VALUES (1, 'fine')")

        [event] = await told.tell(
            "ALTER TYPE mood ADD VALUE 'so so' BEFORE 'fine'",
            "INSERT INTO people VALUES (2, 'so so')",
        )

    assert event.row == {"id": 2, "m": "so so"}
    assert schema_of(told).column("m").parameters["allowed"] == "so so,fine"


async def test_changes_under_another_primary_key_wait_for_the_table_to_be_read(
    guest: Guest,
) -> None:
    create(guest)
    async with story(guest) as told:
        await told.tell("INSERT INTO people VALUES (1, 'Ann')")

        events = await told.tell(
            "UPDATE people SET name = 'Anna'",
            "ALTER TABLE people DROP CONSTRAINT people_pkey, ADD PRIMARY KEY (name, id)",
            "UPDATE people SET name = 'Annie'",
        )

    assert short(events) == [("u", {"id": 1, "name": "Anna"})]
    assert {schema.key for schema in schemas(told)} == {("id",)}
    assert TableSnapshotProgress.parse(told.positions["snapshot/public.people"]).reread == OTHER_KEY


@pytest.fixture
def without_a_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would end the life that follows a table under the name that it had."""
    monkeypatch.setattr(follower, "FIRST_BEAT_SECONDS", 600)


@pytest.mark.usefixtures("without_a_beat")
async def test_a_renamed_table_goes_on_under_its_new_name(guest: Guest) -> None:
    create(guest)
    async with story(guest) as told:
        events = await told.tell(
            "INSERT INTO people VALUES (1, 'Ann')",
            "ALTER TABLE people RENAME TO persons",
            "INSERT INTO persons VALUES (2, 'Ben')",
        )

    assert [event.table for event in events] == ["people", "persons"]


@pytest.mark.usefixtures("without_a_beat")
async def test_a_table_renamed_to_what_the_file_leaves_out_is_left_out(guest: Guest) -> None:
    create(guest)
    async with story(guest, tables=["public.p*", "!public.private"]) as told:
        events = await told.tell(
            "INSERT INTO people VALUES (1, 'Ann')",
            "ALTER TABLE people RENAME TO private",
            "INSERT INTO private VALUES (2, 'Ben')",
        )

    assert [event.table for event in events] == ["people"]


RENAMES = {
    "to a name that is chosen": ("ALTER TABLE people RENAME TO persons", "persons"),
    "to one that is left out": ("ALTER TABLE people RENAME TO private", ""),
    "into a schema that is left out": ("ALTER TABLE people SET SCHEMA away", ""),
}


@pytest.mark.parametrize("name", RENAMES)
async def test_a_new_name_is_seen_while_it_runs_and_the_table_read_under_it(
    guest: Guest, name: str
) -> None:
    statement, now = RENAMES[name]
    create(guest)
    guest.execute(
        "CREATE SCHEMA away",
        "CREATE TABLE planets (id int PRIMARY KEY)",
        "INSERT INTO people SELECT g, 'x' FROM generate_series(1, 9) g",
    )
    folded, tables = Folded(), ["public.p*", "!public.private"]
    guest.execute("ALTER PUBLICATION headwater_shop ADD TABLE planets")
    await until_equal(folded, guest, tables=tables)

    source = source_of(guest, tables=tables, heartbeat="200ms")
    async with aclosing(source.changes(dict(folded.positions))) as batches:
        await anext(batches)
        await guest.run(statement)
        with pytest.raises(SourceUnavailable, match="captured tables have other names by now"):
            async for batch in batches:
                folded.take(batch)
    await until_equal(folded, guest, tables=tables)

    assert set(folded.tables) == {"people", *filter(None, [now])}
    assert not now or not differing(folded, guest, now)
    assert len(folded.rows("people")) == 9


@pytest.mark.parametrize("meanwhile", ["persons", "private"])
async def test_a_table_that_had_another_name_for_a_while_is_read_again_with_the_next_start(
    guest: Guest, meanwhile: str
) -> None:
    create(guest)
    folded, tables = Folded(), ["public.p*", "!public.private"]
    guest.execute("INSERT INTO people SELECT g, 'first' FROM generate_series(1, 9) g")
    await until_equal(folded, guest, tables=tables)
    guest.execute(
        f"ALTER TABLE people RENAME TO {meanwhile}",
        f"INSERT INTO {meanwhile} VALUES (10, 'Ben')",
        f"DELETE FROM {meanwhile} WHERE id = 2",
        f"ALTER TABLE {meanwhile} RENAME TO people",
        "UPDATE people SET name = 'Ann' WHERE id = 3",
    )

    await until_equal(folded, guest, tables=tables)
    missed = differing(folded, guest, "people")
    await until_equal(folded, guest, tables=tables)
    guest.execute("DELETE FROM people WHERE id = 4")
    reread = len(folded.replaced)
    await until_equal(folded, guest, tables=tables)

    assert missed, "what it did under the other name is in another topic, or in none"
    assert not differing(folded, guest, "people")
    assert len(folded.replaced) == reread == 1


async def test_two_tables_that_change_names_are_both_read_again(guest: Guest) -> None:
    create(guest)
    guest.execute(
        "CREATE TABLE planets (id int PRIMARY KEY, name text)",
        "ALTER PUBLICATION headwater_shop ADD TABLE planets",
    )
    guest.execute("INSERT INTO people SELECT g, 'one' FROM generate_series(1, 9) g")
    guest.execute("INSERT INTO planets SELECT g, 'other' FROM generate_series(5, 15) g")
    folded = Folded()
    await until_equal(folded, guest)
    swap = (
        "ALTER TABLE people RENAME TO waiting; ALTER TABLE planets RENAME TO people;"
        " ALTER TABLE waiting RENAME TO planets"
    )
    guest.execute(
        swap,
        "INSERT INTO people VALUES (20, 'x')",
        "INSERT INTO planets VALUES (21, 'y')",
        swap,
        "INSERT INTO people VALUES (22, 'x')",
        "INSERT INTO planets VALUES (23, 'y')",
    )

    await until_equal(folded, guest)
    await until_equal(folded, guest)

    assert not differing(folded, guest, "people") and not differing(folded, guest, "planets")


async def test_a_partition_attached_later_is_part_of_its_table(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE sales (id int, day date, n int, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day)",
        "CREATE TABLE sales_1 PARTITION OF sales FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
    )
    guest.publish("sales")
    async with story(guest) as told:
        events = await told.tell(
            "INSERT INTO sales VALUES (1, '2026-01-05', 1)",
            "CREATE TABLE sales_2 (n int, day date NOT NULL, id int NOT NULL)",
            "ALTER TABLE sales ATTACH PARTITION sales_2"
            " FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
            "INSERT INTO sales VALUES (2, '2026-02-05', 2)",
            "UPDATE sales SET n = 3 WHERE id = 2",
            "UPDATE sales SET day = '2026-02-07' WHERE id = 1",
            "TRUNCATE sales",
        )

    assert [(event.table, event.operation, event.row["n"]) for event in events] == [
        ("sales", "c", 1),
        ("sales", "c", 2),
        ("sales", "u", 3),
        ("sales", "d", None),
        ("sales", "c", 1),
        ("sales", "t", None),
    ]


async def test_a_table_dropped_since_then_is_told_to_its_end(guest: Guest) -> None:
    create(guest)
    async with story(guest) as told:
        await told.tell("INSERT INTO people VALUES (1, 'Ann')")

        events = await told.tell(
            "ALTER TABLE people ADD extra int",
            "UPDATE people SET extra = 5",
            "DROP TABLE people",
        )

    assert short(events) == [("u", {"id": 1, "name": "Ann", "extra": 5})]
    assert schema_of(told).key == ("id",)


async def test_the_form_may_change_within_a_transaction(guest: Guest) -> None:
    create(guest)
    async with story(guest) as told:
        events = await told.tell(
            "BEGIN; INSERT INTO people VALUES (1, 'Ann'); ALTER TABLE people ADD n int;"
            " INSERT INTO people VALUES (2, 'Ben', 2); ALTER TABLE people DROP name;"
            " UPDATE people SET n = 5 WHERE id = 1; TRUNCATE people; COMMIT",
        )

    assert [row for _, row in short(events)] == [
        {"id": 1, "name": "Ann"},
        {"id": 2, "name": "Ben", "n": 2},
        {"id": 1, "n": 5},
        {"id": None, "n": None},
    ]
    assert len({event.commit for event in events}) == 1
    assert [event.index for event in events] == [0, 1, 2, 3]


def schemas(told: Story) -> list[Any]:
    is_stream = [
        changes for changes in told.tables if Operation.READ not in changes.operations.to_pylist()
    ]
    return [changes.schema for changes in is_stream]


async def test_a_form_is_looked_up_without_waiting_for_who_holds_the_table(guest: Guest) -> None:
    """Whoever changes a whole table locks its partitions in his order: a reader of one that waited
    for another would be in his way, and he in the reader's."""
    guest.execute(
        "CREATE TABLE days (day int PRIMARY KEY) PARTITION BY RANGE (day)",
        "CREATE TABLE day_1 PARTITION OF days FOR VALUES FROM (0) TO (100)",
    )
    settings = PostgresSettings.model_validate({"url": guest.url, "tables": ["public.*"]})
    with psycopg.connect(guest.owner) as holder:
        holder.execute("LOCK TABLE days IN ACCESS EXCLUSIVE MODE")
        async with await connect(settings) as connection, asyncio.timeout(PATIENCE_S):
            book = await TypeMap.load(connection, settings)
            catalog = Catalog(settings.tables, {}, "headwater_shop", book)
            [found] = await catalog.tables_of(
                connection, [guest.value("SELECT 'days'::regclass::oid::int8")]
            )

    assert [each.table.name for each in found.partitions] == ["day_1"]
