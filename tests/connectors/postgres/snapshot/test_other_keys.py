"""A topic has records of one table and one key, whatever becomes of both while rows are read."""

import asyncio
from contextlib import aclosing

import pytest

from headwater.connectors.postgres import follower
from headwater.connectors.postgres.events.row_keys import KeyHistory
from headwater.connectors.postgres.server.connection import PgConnection
from headwater.connectors.postgres.slot.heartbeat import Heartbeat
from headwater.connectors.postgres.snapshot.chunk_reader import ChunkReader
from headwater.connectors.postgres.snapshot.jobs import SnapshotJob
from headwater.core_log.model.changes import Phase
from tests.connectors.postgres.snapshot.table_log import Folded, differing, source_of, until_equal
from tests.databases import Guest

ADD_KEY = "ALTER TABLE items ADD PRIMARY KEY (id, k)"
DROP_KEY = "ALTER TABLE items DROP CONSTRAINT items_pkey"
CHANGES = {
    "another column": (f"{DROP_KEY}, ADD PRIMARY KEY (id, k)",),
    "another column, another file": (f"{DROP_KEY}, ADD PRIMARY KEY (id, k)", "VACUUM FULL items"),
    "another column, after none": (DROP_KEY, ADD_KEY),
    "another type": ("ALTER TABLE items ALTER id TYPE bigint",),
}
ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, k int NOT NULL, a text)",
    "INSERT INTO items SELECT i, 1, repeat('a', 500) FROM generate_series(1, 300) i",
    "ANALYZE items",
)
KEYLESS = (*ITEMS, DROP_KEY, "ALTER TABLE items REPLICA IDENTITY FULL")


@pytest.fixture(autouse=True)
def _without_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is not compared in time: the reader of rows sees the change first."""
    monkeypatch.setattr(follower, "FIRST_BEAT_SECONDS", 600)
    monkeypatch.setattr(Heartbeat, "look_soon", lambda _: None)


def change_while_read(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, statements: tuple[str, ...], *, step: int
) -> None:
    """Changes the table before this step of its reading."""
    steps, advance = 0, ChunkReader._advance

    async def change_first(self: ChunkReader, connection: PgConnection, job: SnapshotJob) -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            for statement in statements:
                await guest.run(statement)
        await advance(self, connection, job)

    monkeypatch.setattr(ChunkReader, "_advance", change_first)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("step", [1, 2, 3])  # before it is prepared, and before its first rows
async def test_rows_of_a_new_table_under_another_key_begin_another_topic(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, name: str, step: int
) -> None:
    guest.execute("CREATE TABLE first (id int PRIMARY KEY)")
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute(*ITEMS)
    change_while_read(guest, monkeypatch, CHANGES[name], step=step)

    await asyncio.wait_for(until_equal(folded, guest, heartbeat="1h"), 60)
    guest.execute("INSERT INTO items VALUES (301, 2, 'b')", "DELETE FROM items WHERE id = 7")
    await until_equal(folded, guest)

    assert not differing(folded, guest, "items")


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("step", [1, 2, 3])
async def test_reread_rows_under_another_key_begin_another_topic(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, name: str, step: int
) -> None:
    guest.execute(*ITEMS)
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute("ALTER TABLE items ALTER k TYPE bigint")
    change_while_read(guest, monkeypatch, CHANGES[name], step=step)

    await asyncio.wait_for(until_equal(folded, guest, heartbeat="1h"), 60)
    guest.execute("INSERT INTO items VALUES (301, 2, 'b')", "DELETE FROM items WHERE id = 7")
    await until_equal(folded, guest)

    assert not differing(folded, guest, "items")


async def test_rows_of_a_table_that_gets_a_key_begin_another_topic(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest.execute(*KEYLESS)
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute("ALTER TABLE items ALTER k TYPE bigint")
    change_while_read(guest, monkeypatch, (ADD_KEY,), step=1)

    await asyncio.wait_for(until_equal(folded, guest, heartbeat="1h"), 60)
    guest.execute("INSERT INTO items VALUES (301, 2, 'b')", "DELETE FROM items WHERE id = 7")
    await until_equal(folded, guest)

    assert not differing(folded, guest, "items")


async def test_a_change_under_another_key_has_its_table_read_under_that_key(guest: Guest) -> None:
    """The key that was looked up with the columns is an older one."""
    guest.execute(*ITEMS)
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute("UPDATE items SET a = 'b' WHERE id = 1")

    is_changed = False
    source = source_of(guest, heartbeat="1h", settle_ms=0)
    async with aclosing(source.changes(dict(folded.positions))) as batches:
        async for batch in batches:
            folded.take(batch)
            if not is_changed:
                is_changed = True
                await guest.run(*CHANGES["another column"], "UPDATE items SET a = 'c' WHERE id = 2")
            if any(each.phase is Phase.STARTED for each in folded.replacements):
                break

    assert folded.replacements[-1].schema.key == ("id", "k")
    [[oid]] = guest.rows("SELECT 'items'::regclass::oid")
    assert KeyHistory.restore(folded.positions, []).of(int(oid)) == ("id", "k"), "in the next life"


@pytest.mark.parametrize("settle_ms", [0, 30_000])
async def test_a_table_made_anew_under_another_key_has_another_topic(
    guest: Guest, settle_ms: int
) -> None:
    """The stream has its first changes before anybody looks at the catalog."""
    guest.execute(*ITEMS, "CREATE TABLE others (id int PRIMARY KEY)")
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute("INSERT INTO others VALUES (0)")

    is_changed = False
    source = source_of(guest, heartbeat="1h", settle_ms=settle_ms)
    async with aclosing(source.changes(dict(folded.positions))) as batches:
        async for batch in batches:
            folded.take(batch)
            if not is_changed:
                is_changed = True
                await guest.run(
                    "DROP TABLE items",
                    "CREATE TABLE items (id int, k int, a text, PRIMARY KEY (id, k))",
                    "INSERT INTO items VALUES (1, 1, 'x'), (1, 2, 'y')",
                    "INSERT INTO others VALUES (1)",
                )
            if (1,) in folded.tables["others"]:
                break
    folded.killed()
    guest.until_nobody_streams()
    await until_equal(folded, guest)

    assert not differing(folded, guest, "items")


async def test_changes_of_a_new_table_are_stored_with_its_progress(guest: Guest) -> None:
    """Else nobody could tell them from those of another table that gets its name."""
    guest.execute("CREATE TABLE first (id int PRIMARY KEY)")
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute(*ITEMS)

    async with aclosing(source_of(guest).changes(dict(folded.positions))) as batches:
        async for batch in batches:
            folded.take(batch)
            if folded.tables.get("items"):
                break

    assert "snapshot/public.items" in folded.positions


async def test_a_new_table_that_gives_its_name_away_while_it_is_read_leaves_no_rows_there(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest.execute("CREATE TABLE first (id int PRIMARY KEY)")
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute(*ITEMS)
    swap = (
        "CREATE TABLE others (id int PRIMARY KEY, k int NOT NULL, a text)",
        "INSERT INTO others VALUES (1, 1, 'z')",
        "ALTER TABLE items RENAME TO things",
        "ALTER TABLE others RENAME TO items",
    )
    change_while_read(guest, monkeypatch, swap, step=2)

    await asyncio.wait_for(until_equal(folded, guest, heartbeat="1h"), 60)
    guest.execute("INSERT INTO items VALUES (301, 2, 'b')", "DELETE FROM items WHERE id = 7")
    await until_equal(folded, guest)
    await until_equal(folded, guest)

    assert not differing(folded, guest, "items")
    assert not differing(folded, guest, "things")
