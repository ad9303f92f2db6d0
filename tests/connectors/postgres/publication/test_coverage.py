"""A publication may send only some rows of a table, or some of its columns: then this part is all
that is captured, whether rows are read at first, streamed, read beside that, or at one place."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from headwater.connectors.postgres.discovery import look, open_connection
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    differing,
    in_table,
    source_of,
    until_equal,
)
from tests.connectors.postgres.source_session import story
from tests.databases import Guest

TABLES = (
    "CREATE TABLE orders (secret text, region text, id int, note text, PRIMARY KEY (region, id))",
    "CREATE TABLE audit (id int, what text, is_kept bool)",
    "CREATE TABLE lines (number int)",
    "CREATE TABLE days (at int, region text, what text, PRIMARY KEY (at, region))"
    " PARTITION BY RANGE (at)",
    "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (50)",
    "CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM (50) TO (1000)",
    "ALTER TABLE audit REPLICA IDENTITY FULL",
    "ALTER TABLE lines REPLICA IDENTITY FULL",
    "ALTER TABLE audit ALTER what SET STORAGE external",
)
ROWS = (
    "INSERT INTO orders SELECT 's', CASE g % 3 WHEN 0 THEN 'eu' ELSE 'us' END, g, 'first'"
    " FROM generate_series(1, 400) g",
    "INSERT INTO audit SELECT g, repeat('large', 1000) || g, g % 2 = 0"
    " FROM generate_series(1, 20) g",
    "INSERT INTO lines SELECT g FROM generate_series(1, 20) g",
    "INSERT INTO days SELECT g, CASE g % 3 WHEN 0 THEN 'eu' ELSE 'us' END, 'first'"
    " FROM generate_series(1, 100) g",
)
MAKE = (
    "CREATE PUBLICATION headwater_shop FOR TABLE"
    " orders (region, id, note) WHERE (region = 'eu' -- of theirs\n OR id < 5),"
    " audit WHERE (is_kept), lines WHERE (number > 10), days WHERE (region <> 'us')"
    " WITH (publish_via_partition_root = true)"
)
PARTS: Mapping[str, str] = {
    "orders": "(SELECT region, id, note FROM orders WHERE region = 'eu' OR id < 5)",
    "audit": "(SELECT * FROM audit WHERE is_kept)",
    "lines": "(SELECT * FROM lines WHERE number > 10)",
    "days": "(SELECT * FROM days WHERE region <> 'us')",
}
EMPTYING = ("TRUNCATE days", *(each for each in ROWS if "INTO days" in each))
KEYS = {"public.audit": ["id"]}
CHANGES = (
    "UPDATE orders SET note = 'second', secret = 't' WHERE id % 2 = 0",
    "UPDATE orders SET region = 'us' WHERE region = 'eu' AND id % 5 = 0",
    "UPDATE orders SET region = 'eu' WHERE id % 7 = 0",
    "UPDATE audit SET is_kept = NOT is_kept WHERE id < 10",
    "UPDATE days SET at = at + 200 WHERE at < 20",
    "UPDATE days SET region = 'us' WHERE at = 90",
    "INSERT INTO lines VALUES (5), (50)",
    "DELETE FROM orders WHERE id % 11 = 0",
    "DELETE FROM days WHERE at % 10 = 0",
)


@pytest.fixture
def shop(guest: Guest) -> Guest:
    if guest.value("SELECT current_setting('server_version_num')::int") < 15_0000:
        pytest.skip("row filters and lists of columns came with PostgreSQL 15")
    guest.execute(*TABLES, *ROWS, MAKE)
    return guest


@pytest.mark.parametrize("first", [["public.*"], ["public.days"]], ids=["at first", "beside"])
async def test_unpublished_rows_and_columns_are_never_captured(
    shop: Guest, first: list[str]
) -> None:
    folded = Folded()
    await until_equal(folded, shop, tables=first, keys=KEYS)
    await until_equal(folded, shop, keys=KEYS)
    read = differences(folded, shop)
    shop.execute(*CHANGES)
    await until_equal(folded, shop, keys=KEYS)

    assert not read
    assert not differences(folded, shop)
    assert not any("secret" in row for row in folded.rows("orders"))


async def test_a_consistent_snapshot_has_the_same_part(shop: Guest) -> None:
    found: dict[str, list[dict[str, Any]]] = {}

    async with source_of(shop).snapshot({}) as snapshot:
        for table in PARTS:
            coming = snapshot.rows(TableId("public", table))
            found[table] = [row async for each in coming for row in each.rows.to_pylist()]

    for table, part in PARTS.items():
        assert sorted(found[table], key=repr) == in_table(shop, part)


async def test_a_part_that_becomes_another_is_read_again(shop: Guest) -> None:
    """What comes into it is not streamed, and neither is what leaves it."""
    folded = Folded()
    await until_equal(folded, shop, keys=KEYS)
    other = MAKE.replace("region = 'eu'", "region = 'us'").replace("(region, id, note)", "")
    [objects] = other.split("FOR ")[1].split(" WITH ")[:1]
    shop.execute(
        f"ALTER PUBLICATION headwater_shop SET {objects}", "DELETE FROM audit WHERE id > 5"
    )

    with pytest.raises(PositionLost, match="another part") as lost:
        async with story(shop, positions=folded.positions, keys=KEYS):
            pass
    await until_equal(folded, shop, keys=KEYS, position_mismatch="resnapshot")

    assert lost.value.facts["tables"] == "public.orders"
    part = "(SELECT * FROM orders WHERE region = 'us' OR id < 5)"
    assert not differing(folded, shop, "orders", part)
    assert not differing(folded, shop, "audit", PARTS["audit"])


async def test_a_list_of_columns_follows_renamed_columns(shop: Guest) -> None:
    """The key of a table with a list of columns is called otherwise while the source runs."""
    folded = Folded()
    await until_equal(folded, shop, tables=["public.orders"])
    shop.execute(
        "ALTER TABLE orders RENAME region TO area",
        "UPDATE orders SET note = 'third' WHERE id = 3",
        "UPDATE orders SET note = 'third' WHERE id = 100",
    )
    await until_equal(folded, shop, tables=["public.orders"])

    changed = [row for row in folded.rows("orders") if row["note"] == "third"]
    assert changed == [{"area": "eu", "id": 3, "note": "third"}]


async def test_a_table_looked_up_again_under_another_name_is_the_same_part(shop: Guest) -> None:
    settings = PostgresSettings.model_validate({"url": shop.url, "tables": ["public.orders"]})
    async with open_connection(settings) as connection:
        [table], _, catalog = await look(connection, settings, "shop")
        shop.execute(
            "ALTER TABLE orders RENAME TO purchases", "ALTER TABLE purchases RENAME region TO area"
        )
        [again] = await catalog.tables_of(connection, [table.oid])

    assert table.schema.names == ("region", "id", "note")
    assert again.schema.names == ("area", "id", "note")
    assert again.condition == table.condition.replace("region", "area")


async def test_a_truncate_and_a_reader_of_a_partitioned_table_never_deadlock(
    shop: Guest,
) -> None:
    """What the other one has: the condition of a part is asked of the table, and rows of a
    partition, in which order whoever changes all of it takes them as well."""
    folded = Folded()
    await until_equal(folded, shop, tables=["public.lines"])
    emptying = asyncio.ensure_future(asyncio.to_thread(shop.execute, *EMPTYING * 150))

    await until_equal(folded, shop, keys=KEYS, snapshot={"chunk_rows": 1})
    await emptying
    await until_equal(folded, shop, keys=KEYS)

    assert not differences(folded, shop)
    assert not shop.value(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )


def differences(folded: Folded, shop: Guest) -> dict[str, dict[str, int]]:
    found = {table: differing(folded, shop, table, part) for table, part in PARTS.items()}
    return {table: rows for table, rows in found.items() if rows}
