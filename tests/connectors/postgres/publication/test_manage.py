"""The publication is kept to the tables of the file where our role may, else the SQL is printed."""

from typing import Any

import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.publication import manage
from headwater.connectors.postgres.server.connection import connect, quote
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest

ORDERS, ITEMS = TableId("public", "orders"), TableId("public", 'it"ems; ä')
TABLES = 'CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE "it""ems; ä" (id int PRIMARY KEY)'
NAME = 'Pub "x"'
SLOTS = """
SELECT slot_name::text, plugin::text FROM pg_replication_slots
WHERE database = current_database()
"""


def settings_of(url: str, **choices: Any) -> PostgresSettings:
    return PostgresSettings(url=SecretStr(url), tables=("public.*",), **choices)


async def kept(url: str, *tables: TableId, **choices: Any) -> list[str]:
    settings = settings_of(url, **choices)
    async with await connect(settings) as connection:
        return list(await manage.keep(connection, settings, NAME, tables))


def published(guest: Guest) -> set[str]:
    return {row[0] for row in guest.rows("SELECT tablename FROM pg_publication_tables")}


async def test_a_publication_follows_the_tables_of_the_file(guest: Guest) -> None:
    guest.execute(TABLES)

    assert len(await kept(guest.owner, ORDERS)) == 1
    first = published(guest)
    assert len(await kept(guest.owner, ORDERS, ITEMS)) == 1
    second = published(guest)
    assert len(await kept(guest.owner, ITEMS)) == 1
    third = published(guest)

    assert (first, second, third) == ({"orders"}, {"orders", ITEMS.name}, {ITEMS.name})
    assert await kept(guest.owner, ITEMS) == []


async def test_a_table_that_inherits_comes_and_goes_by_itself(guest: Guest) -> None:
    heir = TableId("public", "heir")
    guest.execute(TABLES, "CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (orders)")

    await kept(guest.owner, heir)
    await kept(guest.owner, heir, ORDERS)
    both = published(guest)
    await kept(guest.owner, heir)

    assert (both, published(guest)) == ({"heir", "orders"}, {"heir"})


async def test_one_for_all_tables_is_left_as_it_is(guest: Guest) -> None:
    guest.execute(TABLES)
    guest.publish(name=quote(NAME))

    assert await kept(guest.owner, ORDERS) == []
    assert await kept(guest.url, ORDERS) == []


async def test_a_standby_reads_a_sufficient_publication_and_else_the_sql_is_in_the_error(
    guest: Guest,
) -> None:
    guest.execute(TABLES)
    standby = f"{guest.owner}?options=-c%20default_transaction_read_only%3Don"

    with pytest.raises(SourceRejected, match="may not make") as unmade:
        await kept(standby, ORDERS)
    await kept(guest.owner, ORDERS)
    with pytest.raises(SourceRejected, match="does not send all") as missing:
        await kept(standby, ORDERS, ITEMS)
    await kept(guest.owner, ORDERS, ITEMS)

    assert await kept(standby, ORDERS) == []
    assert "CREATE PUBLICATION" in unmade.value.hint and "ADD TABLE" in missing.value.hint


async def test_a_role_without_rights_gets_the_sql_for_the_owner_in_the_error(guest: Guest) -> None:
    guest.execute(TABLES)

    with pytest.raises(SourceRejected, match="may not make the publication") as refused:
        await kept(guest.url, ORDERS)
    guest.execute(sql_of(refused.value))
    assert await kept(guest.url, ORDERS) == []
    with pytest.raises(SourceRejected, match="does not send all") as refused:
        await kept(guest.url, ORDERS, ITEMS)
    guest.execute(sql_of(refused.value))

    assert await kept(guest.url, ORDERS, ITEMS) == []
    assert await kept(guest.url, ITEMS) == [], "what is published beyond the file is left out by us"


def sql_of(error: SourceRejected) -> str:
    return error.hint.partition("run: ")[2]


async def test_a_given_one_is_never_changed(guest: Guest) -> None:
    guest.execute(TABLES)
    never = {"create": "never"}

    with pytest.raises(SourceRejected, match="the publication does not exist"):
        await kept(guest.owner, ORDERS, publication=never)
    guest.execute(f"CREATE PUBLICATION {quote(NAME)} FOR TABLE orders")
    with pytest.raises(SourceRejected, match="does not send all") as refused:
        await kept(guest.owner, ORDERS, ITEMS, publication=never)
    guest.execute(*sql_of(refused.value).split("; ALTER")[:1])

    assert refused.value.facts["tables_missing"] == str(ITEMS)
    assert refused.value.facts["publish_via_partition_root"] == "false"


async def test_a_table_that_nobody_could_change_any_more_is_not_published(guest: Guest) -> None:
    guest.execute(TABLES, "CREATE TABLE bare (id int)")
    bare = TableId("public", "bare")

    with pytest.raises(SourceRejected, match="refuse every UPDATE and DELETE") as refused:
        await kept(guest.owner, ORDERS, bare)
    assert not guest.rows("SELECT FROM pg_publication")
    guest.execute(refused.value.hint.partition("or: ")[2])

    assert await kept(guest.owner, ORDERS, bare)


async def test_dropped_is_only_what_we_made(guest: Guest) -> None:
    guest.execute(TABLES)
    await kept(guest.owner, ORDERS)

    for create, is_dropped in (("never", False), ("auto", True), ("auto", False)):
        settings = settings_of(guest.owner, publication={"create": create})
        async with await connect(settings) as connection:
            assert await manage.drop(connection, settings, NAME) is is_dropped


async def test_the_plan_is_sql_that_makes_what_a_run_makes_and_makes_nothing(guest: Guest) -> None:
    guest.execute(TABLES)
    settings = settings_of(guest.owner)
    source = PostgresSource(settings, source_context())

    planned = await source.plan()
    before = guest.rows("SELECT pubname FROM pg_publication"), guest.rows(SLOTS)
    guest.execute(*planned)

    assert before == ([], [])
    assert published(guest) == {"orders", ITEMS.name}
    assert guest.rows(SLOTS) == [("headwater_shop", "pgoutput")]
    assert list(await source.plan()) == []
    await source.drop()
