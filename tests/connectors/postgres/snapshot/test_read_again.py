"""Tables that were emptied to be read again are read again, whatever comes in between."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from headwater.connectors.postgres.follower import StreamFollower
from headwater.connectors.source import Control
from headwater.core_log.model.changes import Phase, Replacement
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    differing,
    in_table,
    live,
    source_of,
    until_equal,
)
from tests.connectors.postgres.snapshot.test_incremental_snapshot import until
from tests.connectors.postgres.snapshot.writer import ORDERS
from tests.connectors.snapshot.test_time_window import BY_NIGHT, HOUR_MS, NOON_MS
from tests.databases import Guest
from tests.fakes import FastClock, SimulatedClock

NIGHT_MS = NOON_MS + 11 * HOUR_MS
ORDERS_AND_LOG = {
    "orders": "CREATE TABLE orders (id int PRIMARY KEY)",
    "log": "CREATE TABLE log (id int)",
}
"""With a key and without."""


async def test_a_restart_by_day_does_not_forget_what_is_to_be_read_by_night(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded = Folded()
    again: dict[str, Any] = {"snapshot": BY_NIGHT, "position_mismatch": "resnapshot"}
    await until_equal(folded, guest, clock=SimulatedClock(NIGHT_MS), **again)
    assert not differing(folded, guest, "orders")
    guest.until_nobody_streams()
    guest.execute("SELECT pg_drop_replication_slot('headwater_shop')")

    await live(folded, source_of(guest, clock=SimulatedClock(NOON_MS), **again), batches=2)
    await until_equal(folded, guest, clock=SimulatedClock(NIGHT_MS), **again)

    assert folded.truncates == 1
    assert not differing(folded, guest, "orders")


async def test_a_table_without_a_key_is_read_with_the_columns_it_has_now(guest: Guest) -> None:
    guest.execute("CREATE TABLE audit (at int, what text)", "INSERT INTO audit VALUES (1, 'a')")
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    source = source_of(guest)
    reading = asyncio.ensure_future(live(folded, source))
    try:
        await until(lambda: source._reading is not None and source._reading._following is not None)
        await guest.run(
            "ALTER TABLE audit ADD who text DEFAULT 'me'",
            "INSERT INTO audit VALUES (2, 'b', 'you')",
        )
        await until(lambda: len(folded.rows("audit")) == 2)
        await source.control(Control("w1", "snapshot", TableId("public", "audit")))
        await until(lambda: bool(folded.truncates) or reading.done())
    finally:
        reading.cancel()
        await asyncio.wait([reading])

    assert not differing(folded, guest, "audit")


async def test_an_emptied_table_stays_empty_and_is_read_as_soon_as_the_stream_is_there(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its changes of before it was read again are still to come by the stream."""
    are_due, wait = list[bool](), StreamFollower._something

    async def note_and_wait(self: StreamFollower, *events: Any) -> None:
        awaits = self._incremental.awaits
        are_due.append(awaits is not None and awaits <= self._reached)
        await wait(self, *events)

    monkeypatch.setattr(StreamFollower, "_something", note_and_wait)
    guest.execute(*ORDERS, "CREATE TABLE other (id int PRIMARY KEY)")
    guest.publish("orders", "other")
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute(
        "INSERT INTO orders SELECT i, i, repeat('y', 300) FROM generate_series(100000, 130000) i",
        "ALTER PUBLICATION headwater_shop DROP TABLE orders",
        "TRUNCATE orders",
        "ALTER PUBLICATION headwater_shop ADD TABLE orders",
    )

    again = {"position_mismatch": "resnapshot", "receive_bytes": 1 << 16}
    await until_equal(folded, guest, **again)
    await until_equal(folded, guest, **again)

    assert folded.rows("orders") == in_table(guest, "orders") == []
    assert are_due and not any(are_due), "it waited though rows could be read"


@pytest.mark.parametrize("table", [*ORDERS_AND_LOG])
async def test_rows_that_a_reread_no_longer_finds_are_deleted_at_the_time_of_its_snapshot(
    guest: Guest, table: str
) -> None:
    """By the clock of the server: a row that comes again is newer than its delete."""
    guest.execute(ORDERS_AND_LOG[table], f"INSERT INTO {table} VALUES (1), (2)")
    guest.publish()
    folded, replacements = Folded(), list[Replacement]()
    await until_equal(folded, guest)
    guest.execute(f"ALTER TABLE {table} ADD made timestamptz DEFAULT clock_timestamp()")

    source = source_of(guest, clock=FastClock(), until_end=True)
    async with aclosing(source.changes(dict(folded.positions))) as coming:
        async for batch in coming:
            replacements += batch.replacements

    [end] = [each for each in replacements if each.phase is Phase.COMPLETE]
    [[now_us]] = guest.rows("SELECT (extract(epoch FROM now()) * 1000000)::int8")
    assert end.source["ts_us"] <= now_us
