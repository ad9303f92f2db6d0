"""The first reading of rows: which of them, of which tables, and what is said of it."""

import asyncio
import gc
from contextlib import aclosing

import psycopg
import pytest

from headwater.connectors.postgres.snapshot import initial_snapshot
from headwater.connectors.source import Control
from headwater.core_log.foundation.errors import PositionLost, SourceUnavailable
from headwater.core_log.model.table_schema import TableId
from tests.budget import PATIENCE_S
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    Told,
    differing,
    in_table,
    live,
    source_of,
    until_equal,
)
from tests.connectors.postgres.snapshot.writer import AUDIT, KEYS, ORDERS
from tests.databases import Guest

COLUMNS_MAX = 1_600
END_READERS = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE application_name = 'headwater shop snapshot' AND datname = current_database()"
)


async def test_a_table_that_somebody_holds_is_not_waited_for_but_read_beside_the_stream(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He may well wait for another of our connections, and all others for him."""
    guest.execute(*ORDERS, *AUDIT)
    guest.publish()
    monkeypatch.setattr(initial_snapshot, "LOCK_MS", 200)
    folded = Folded()

    with psycopg.connect(guest.owner) as holder:
        async with aclosing(source_of(guest).changes({})) as coming:
            folded.take(await anext(coming))
            await asyncio.to_thread(holder.execute, "LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(SourceUnavailable, match="the rows cannot be read"):
                async for batch in coming:
                    folded.take(batch)
    folded.killed()
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")
    assert not differing(folded, guest, "audit")


async def test_a_condition_of_the_file_chooses_the_rows(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded = Folded()

    await until_equal(folded, guest, snapshot={"where": {"public.o*": "id <= 7 -- few"}})
    guest.execute("UPDATE orders SET amount = 0 WHERE id IN (7, 8)")
    await until_equal(folded, guest)

    assert [row["id"] for row in folded.rows("orders")] == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_nothing_is_read_where_only_the_stream_is_wanted(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded = Folded()

    await until_equal(folded, guest, snapshot={"mode": "never"})
    guest.execute("INSERT INTO orders VALUES (-1, 0, 'new')")
    await until_equal(folded, guest, snapshot={"mode": "never"})
    assert [row["id"] for row in folded.rows("orders")] == [-1]
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")


async def test_only_rows_are_read_where_no_stream_is_wanted_and_the_slot_goes(
    guest: Guest,
) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded, only = Folded(), {"mode": "initial_only"}
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"

    await live(folded, source_of(guest, snapshot=only))
    rows, left = in_table(guest, "orders"), guest.rows(slots)
    guest.execute("INSERT INTO orders VALUES (-1, 0, 'new')")
    await live(folded, source_of(guest, snapshot=only))
    guest.execute("DROP TABLE orders")
    await live(folded, source_of(guest, snapshot=only))

    assert folded.rows("orders") == rows and not left
    assert len(folded.reads) == KEYS, "what has been read is not read again"


async def test_a_slot_that_goes_before_all_rows_are_read_is_missed_though_only_they_are_wanted(
    guest: Guest,
) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded, only = Folded(), {"mode": "initial_only", "parallel": 1}
    await live(folded, source_of(guest, snapshot=only), batches=2)
    await asyncio.to_thread(without_slot, guest)

    with pytest.raises(PositionLost, match="slot is gone"):
        await live(folded, source_of(guest, snapshot=only))
    await live(folded, source_of(guest, snapshot=only, position_mismatch="resnapshot"))

    assert not differing(folded, guest, "orders")


def without_slot(guest: Guest) -> None:
    guest.execute(
        "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
        " WHERE slot_name = 'headwater_shop' AND active",
        "SELECT pg_drop_replication_slot('headwater_shop')",
    )


async def test_a_table_that_is_paused_is_awaited_where_only_rows_are_wanted(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded, only = Folded(), {"mode": "initial_only", "parallel": 1}
    source, waits = source_of(guest, snapshot=only), 0

    async def said(action: str) -> None:
        await source.control(
            Control(action, "snapshot", TableId("public", "orders"), {"action": action})
        )

    async with aclosing(source.changes({})) as coming:
        async for batch in coming:
            folded.take(batch)
            if len(folded.positions) > 1 and not waits:
                waits = 1
                await said("pause")
            if "control/pause" in batch.positions:
                asyncio.get_running_loop().call_later(
                    0.1, lambda: asyncio.ensure_future(said("resume"))
                )

    assert not differing(folded, guest, "orders")


async def test_a_table_that_comes_when_all_rows_are_read_is_told_of(
    guest: Guest, caplog: pytest.LogCaptureFixture
) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded, only = Folded(), {"mode": "initial_only"}
    await live(folded, source_of(guest, snapshot=only))
    guest.execute("CREATE TABLE later (id int PRIMARY KEY)")

    await live(folded, source_of(guest, snapshot=only))

    assert "public.later match `tables` and are not read" in caplog.text
    assert "public.orders" not in caplog.text


async def test_progress_is_told_of_every_table(guest: Guest) -> None:
    guest.execute(*ORDERS, *AUDIT, "CREATE TABLE nothing (id int PRIMARY KEY)")
    guest.publish()
    told = Told()

    await live(Folded(), source_of(guest, report=told), batches=4)
    middle = dict(told.newest)
    await until_equal(Folded(), guest, report=told)

    assert set(told.newest) == {"orders", "audit", "nothing"}
    assert all(each.is_done for each in told.newest.values())
    assert told.newest["orders"].rows == told.newest["orders"].rows_expected == KEYS
    assert told.newest["orders"].bytes == told.newest["orders"].bytes_expected
    assert not all(each.is_done for each in middle.values())


async def test_names_may_be_anything_and_tables_as_wide_as_can_be(guest: Guest) -> None:
    wide = ", ".join(f'"c {number}" int' for number in range(COLUMNS_MAX - 1))
    name = '"Weird Schéma"."Tàble ""x"" {y}%s"'
    guest.execute(
        'CREATE SCHEMA "Weird Schéma"',
        f"CREATE TABLE {name} (\"sel\\ect '%s'\" int PRIMARY KEY, {wide})",
        f"INSERT INTO {name} SELECT {', '.join(['i'] * COLUMNS_MAX)} FROM generate_series(1, 9) i",
        f"ANALYZE {name}",
    )
    guest.publish()
    folded = Folded()

    await live(folded, source_of(guest, tables=["Weird*"], snapshot={"chunk_rows": 1}), batches=3)
    await until_equal(folded, guest, tables=["Weird*"])

    assert folded.rows('Weird Schéma.Tàble "x" {y}%s') == in_table(guest, name)
    assert len(folded.reads) == 9


@pytest.mark.parametrize("parallel", [1, 3])
async def test_a_connection_that_breaks_ends_the_reading_which_goes_on_in_the_next_life(
    guest: Guest, parallel: int
) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded, count, complaints = Folded(), 0, list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))

    async with aclosing(source_of(guest, snapshot={"parallel": parallel}).changes({})) as batches:
        with pytest.raises(SourceUnavailable):
            async with asyncio.timeout(PATIENCE_S):
                async for batch in batches:
                    folded.take(batch)
                    if (count := count + 1) == 3:
                        guest.execute(END_READERS)
    folded.killed()
    await until_equal(folded, guest)
    gc.collect()

    assert not differing(folded, guest, "orders")
    assert len(folded.reads) == KEYS, "finished work is not read again"
    assert not complaints, "what the other connections failed with was nobody's to hear"
