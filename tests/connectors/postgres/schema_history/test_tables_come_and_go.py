"""Tables come into the file and go out of it, and what happened to them meanwhile is not missed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from headwater.connectors.postgres.publication import monitor
from headwater.connectors.postgres.publication.monitor import NEW_TABLES
from headwater.connectors.postgres.schema_history.table_definition import OTHER_KEY
from headwater.connectors.postgres.slot.replication_slot import CreatedSlot, SlotMaker
from headwater.connectors.postgres.wal.stream import WalStream
from headwater.connectors.postgres.wal.wal_batch import WalBatch
from headwater.connectors.source import Remark, SnapshotProgress, SourceReport
from headwater.core_log.foundation.errors import SourceUnavailable
from tests.connectors.postgres.slot.test_lost_positions import rows_of, run_once
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    differing,
    live,
    source_of,
    until_equal,
)
from tests.databases import Guest

OTHER_ITEMS = "id int, place int, PRIMARY KEY (place, id)"
PIPELINE = """
pipeline: shop
source: {{type: postgres, url: {url}, tables: {tables}}}
sink: {{type: sql, url: "sqlite:///shop.db", commit_every: 0s}}
"""


async def test_a_table_that_was_out_for_a_while_is_read_again(guest: Guest, tmp_path: Path) -> None:
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE emptied (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'first' FROM generate_series(1, 9) g",
        "INSERT INTO emptied SELECT g, 'first' FROM generate_series(1, 9) g",
    )
    file = tmp_path / "pipeline.yaml"

    async def run(tables: str) -> None:
        file.write_text(PIPELINE.format(url=guest.owner, tables=tables))
        await run_once(file)

    await run("[public.orders]")
    guest.execute("DELETE FROM emptied WHERE id = 1", "INSERT INTO orders VALUES (10, 'alone')")
    await run("[public.orders, public.emptied]")
    guest.execute("INSERT INTO emptied VALUES (11, 'both')")
    await run("[public.orders]")
    guest.execute("DELETE FROM emptied WHERE id < 4", "INSERT INTO emptied VALUES (12, 'unseen')")
    await run("[public.orders]")
    guest.execute("UPDATE emptied SET note = 'unseen' WHERE id = 5")
    await run("[public.*]")
    guest.execute("INSERT INTO emptied VALUES (13, 'seen')", "DELETE FROM orders WHERE id = 1")
    await run("[public.*]")

    assert rows_of(tmp_path) == {
        table: guest.rows(f"SELECT id, note FROM {table} ORDER BY id")
        for table in ("orders", "emptied")
    }


async def test_another_table_of_the_same_name_is_read_from_its_beginning(
    guest: Guest, tmp_path: Path
) -> None:
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE emptied (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'first' FROM generate_series(1, 9) g",
        "INSERT INTO emptied SELECT g, 'first' FROM generate_series(1, 9) g",
    )
    file = tmp_path / "pipeline.yaml"
    tables = "[public.orders, public.emptied]"
    file.write_text(PIPELINE.format(url=guest.owner, tables=tables))

    await run_once(file)
    guest.execute(
        "DROP TABLE orders",
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'another' FROM generate_series(5, 12) g",
        "CREATE TABLE made_ready (id int PRIMARY KEY, note text)",
        "INSERT INTO made_ready SELECT g, 'another' FROM generate_series(8, 20) g",
        "BEGIN; ALTER TABLE emptied RENAME TO old;"
        " ALTER TABLE made_ready RENAME TO emptied; COMMIT",
    )
    await run_once(file)
    guest.execute("INSERT INTO emptied VALUES (30, 'after')", "DELETE FROM orders WHERE id = 7")
    await run_once(file)

    assert rows_of(tmp_path) == {
        table: guest.rows(f"SELECT id, note FROM {table} ORDER BY id")
        for table in ("orders", "emptied")
    }


@pytest.mark.parametrize("is_read_between", [True, False])
async def test_a_name_that_one_table_had_in_passing_is_emptied_for_the_next(
    guest: Guest, is_read_between: bool
) -> None:
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO orders SELECT g FROM generate_series(1, 9) g",
        "INSERT INTO others SELECT g FROM generate_series(1, 5) g",
    )
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)

    guest.execute(
        "ALTER TABLE orders RENAME TO passing",
        "INSERT INTO passing VALUES (10)",
        "ALTER TABLE passing RENAME TO orders",
    )
    if is_read_between:
        await until_equal(folded, guest)
    guest.execute("ALTER TABLE others RENAME TO passing", "INSERT INTO passing VALUES (6)")
    await until_equal(folded, guest)
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")
    assert not differing(folded, guest, "passing")


async def test_changes_under_a_name_that_is_left_out_are_read_again(
    guest: Guest,
) -> None:
    """Though its rows are being read meanwhile."""
    guest.execute(
        "CREATE SCHEMA away",
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "INSERT INTO orders SELECT g FROM generate_series(1, 9) g",
    )
    guest.publish()
    folded = Folded()
    await live(folded, source_of(guest), batches=1)
    guest.execute(
        "INSERT INTO orders VALUES (10), (11)",
        "ALTER TABLE orders SET SCHEMA away",
        "DELETE FROM away.orders WHERE id = 10",
        "ALTER TABLE away.orders SET SCHEMA public",
    )
    await until_equal(folded, guest)
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")


async def test_a_table_made_anew_before_its_rows_are_read_misses_nothing(guest: Guest) -> None:
    """The source is killed as soon as it has stored that it captures the table."""
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    folded = Folded()
    await until_equal(folded, guest, url=guest.owner)
    guest.execute(*items_of("id int PRIMARY KEY"))
    await live(folded, source_of(guest, url=guest.owner), batches=1)
    guest.execute("INSERT INTO items VALUES (9)", "DROP TABLE items", *items_of(OTHER_ITEMS))

    await until_equal(folded, guest, url=guest.owner)
    guest.execute("DELETE FROM items WHERE id = 2")
    await until_equal(folded, guest, url=guest.owner)

    assert not differing(folded, guest, "items")
    assert not differing(folded, guest, "orders")


async def test_a_table_made_anew_while_the_slot_is_created_misses_nothing(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "INSERT INTO orders VALUES (1)",
        *items_of("id int PRIMARY KEY"),
    )
    make = SlotMaker.make

    async def make_later(maker: SlotMaker) -> CreatedSlot:
        guest.execute("DROP TABLE items", *items_of(OTHER_ITEMS))
        return await make(maker)

    folded = Folded()
    with monkeypatch.context() as during:
        during.setattr(SlotMaker, "make", make_later)
        await live(folded, source_of(guest, url=guest.owner), batches=1)
    await until_equal(folded, guest, url=guest.owner)
    guest.execute("DELETE FROM items WHERE id = 2")
    await until_equal(folded, guest, url=guest.owner)

    assert not differing(folded, guest, "items")
    assert not differing(folded, guest, "orders")


async def test_changes_of_former_tables_never_enter_the_topic_of_the_next_one(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the next one changes its form before the stream has passed the former ones."""
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)", *items_of("id int PRIMARY KEY"))
    guest.publish()
    folded, may_come = Folded(), asyncio.Event()
    await until_equal(folded, guest)
    former = items_of("id int, place int, PRIMARY KEY (id, place)")
    guest.execute("DROP TABLE items", *former, "DROP TABLE items", *items_of(OTHER_ITEMS))
    wal_batches = WalStream.wal_batches

    async def late_batches(stream: WalStream) -> AsyncGenerator[WalBatch, None]:
        await may_come.wait()
        async with aclosing(wal_batches(stream)) as batches:
            async for batch in batches:
                yield batch

    with monkeypatch.context() as during:
        during.setattr(WalStream, "wal_batches", late_batches)
        during.setattr(monitor, "LOOK_MS", 0)
        source = source_of(guest, until_end=True, heartbeat="100ms")
        async with aclosing(source.changes(dict(folded.positions))) as batches:
            async for batch in batches:
                if not may_come.is_set() and batch.replacements:
                    await guest.run("ALTER TABLE items ALTER id TYPE bigint")
                folded.take(batch)
                if any(each.why == OTHER_KEY for each in batch.replacements):
                    may_come.set()
    await until_equal(folded, guest)

    assert not differing(folded, guest, "items")


@pytest.mark.parametrize(
    "meanwhile",
    [
        ("DROP TABLE items",),
        (
            "DROP TABLE items",
            "CREATE TABLE items (id int, place int, PRIMARY KEY (id, place))",
            "INSERT INTO items VALUES (1, 1)",
            "DROP TABLE items",
            "CREATE TABLE items (id int, place int, PRIMARY KEY (place, id))",
        ),
    ],
    ids=["gone", "made anew"],
)
async def test_a_table_made_under_another_key_while_the_source_runs_is_read_first(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, meanwhile: tuple[str, ...]
) -> None:
    monkeypatch.setattr(monitor, "LOOK_MS", 0)
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)", *items_of("id int PRIMARY KEY"))
    guest.publish()
    folded, is_made = Folded(), False
    await until_equal(folded, guest)
    guest.execute(*meanwhile)
    if len(meanwhile) == 1:
        await until_equal(folded, guest)

    source = source_of(guest, heartbeat="100ms")
    with pytest.raises(SourceUnavailable, match=r"there again|made anew"):
        async with aclosing(source.changes(dict(folded.positions))) as batches:
            async for batch in batches:
                folded.take(batch)
                if not is_made and "stream" in batch.positions:
                    is_made = True
                    items = items_of("id int, place int, PRIMARY KEY (id, place)")
                    await guest.run("DROP TABLE IF EXISTS items", *items)
    folded.killed()
    await until_equal(folded, guest)

    assert not differing(folded, guest, "items")


async def test_rows_read_before_a_restart_are_reported_as_done(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'first' FROM generate_series(1, 9) g",
    )
    guest.publish()
    folded, said = Folded(), list[SourceReport]()
    await until_equal(folded, guest)

    await until_equal(folded, guest, report=said.append)

    done = [each for each in said if isinstance(each, SnapshotProgress)]
    assert [(str(each.table), each.rows, each.is_done) for each in done] == [
        ("public.orders", 9, True)
    ]


async def test_a_table_that_comes_while_others_are_read_is_named_at_the_end(guest: Guest) -> None:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    guest.publish()
    said = list[SourceReport]()

    def report(each: SourceReport) -> None:
        if not said:
            guest.execute("CREATE TABLE items (id int PRIMARY KEY)")
        said.append(each)

    folded = Folded()
    await until_equal(folded, guest, report=report)
    [found] = [
        each.finding for each in said if isinstance(each, Remark) and each.name == NEW_TABLES
    ]
    said = [Remark("later", None)]
    await until_equal(folded, guest, report=report)

    assert found is not None and found.left_out == ("public.items",)
    assert not any(isinstance(each, Remark) and each.finding for each in said)
    assert folded.keys.keys() == {"orders"} and not differing(folded, guest, "orders")


def items_of(columns: str) -> tuple[str, str]:
    return (
        f"CREATE TABLE items ({columns})",
        "INSERT INTO items SELECT g FROM generate_series(1, 5) g"
        if "place" not in columns
        else "INSERT INTO items SELECT g, g FROM generate_series(2, 7) g",
    )
