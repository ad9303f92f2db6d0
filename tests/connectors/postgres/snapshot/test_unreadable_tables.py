"""A table of which the server cannot read every row is left out alone, and read once it can."""

from contextlib import aclosing
from typing import Any

import pytest

from headwater.connectors.snapshot import unreadable_tables
from headwater.connectors.snapshot.unreadable_tables import UNREADABLE
from headwater.connectors.source import Control, Remark
from headwater.core_log.foundation.errors import SourceUnavailable
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    differing,
    live,
    source_of,
    until_equal,
)
from tests.connectors.postgres.snapshot.writer import ORDERS
from tests.databases import Guest

BROKEN = TableId("public", "broken")
CREATE = (
    "CREATE TYPE state AS ENUM ('new', 'old', 'lost')",
    "CREATE TABLE broken (id int PRIMARY KEY, state state)",
    "INSERT INTO broken SELECT id, CASE id WHEN 150 THEN 'lost' ELSE 'new' END::state"
    " FROM generate_series(1, 200) id",
)
BREAK = "DELETE FROM pg_enum WHERE enumlabel = 'lost'"
"""As after damage: reading that row is an error of the server."""
MEND = "UPDATE broken SET state = 'old' WHERE id = 150"


class Remarks:
    """Which tables the newest remark names."""

    def __init__(self) -> None:
        self.left_out: list[tuple[str, ...]] = []

    def __call__(self, told: Any) -> None:
        if isinstance(told, Remark) and told.name == UNREADABLE:
            self.left_out.append(told.finding.left_out if told.finding else ())


@pytest.mark.parametrize("parallel", [1, 4])
async def test_a_table_that_cannot_be_read_is_named_and_the_others_are_delivered(
    guest: Guest, parallel: int
) -> None:
    guest.execute(*ORDERS, *CREATE, BREAK)
    guest.publish()
    folded, remarks, chosen = Folded(), Remarks(), {"parallel": parallel}

    await live(folded, source_of(guest, until_end=True, report=remarks, snapshot=chosen))
    named, without = remarks.left_out[-1], differing(folded, guest, "orders")
    guest.execute(MEND)
    await live(folded, source_of(guest, until_end=True, report=remarks, snapshot=chosen))

    assert named == ("public.broken",) and not without
    assert not differing(folded, guest, "broken")
    assert len(folded.reads) == len(set(folded.reads))


async def test_a_table_that_cannot_be_read_beside_the_stream_is_read_once_it_is_mended(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable_tables, "RETRY_S", 0.05)
    guest.execute(*ORDERS, *CREATE)
    guest.publish()
    folded, remarks = Folded(), Remarks()
    await until_equal(folded, guest)
    guest.execute(BREAK, "DELETE FROM orders WHERE id = 1")

    source = source_of(guest, report=remarks, heartbeat="100ms")
    async with aclosing(source.changes(dict(folded.positions))) as coming:
        folded.take(await anext(coming))
        await source.control(Control("again", "snapshot", BROKEN, {"action": "start"}))
        while ("public.broken",) not in remarks.left_out:
            folded.take(await anext(coming))
        guest.execute("INSERT INTO orders VALUES (-1, 0, 'new')")
        while not any(row["id"] == -1 for row in folded.rows("orders")):
            folded.take(await anext(coming))
        await guest.run(MEND)
        while remarks.left_out[-1]:
            folded.take(await anext(coming))

    assert not differing(folded, guest, "orders") and not differing(folded, guest, "broken")


async def test_a_table_whose_first_row_cannot_be_read_is_left_out_when_a_column_is_renamed(
    guest: Guest,
) -> None:
    guest.execute(*ORDERS, *CREATE)
    guest.publish()
    folded, remarks = Folded(), Remarks()
    await until_equal(folded, guest)
    guest.execute(
        "DELETE FROM broken WHERE id < 150", BREAK, "ALTER TABLE broken RENAME state TO mood"
    )

    await live(folded, source_of(guest, until_end=True, report=remarks))
    named = remarks.left_out[-1]
    guest.execute("UPDATE broken SET mood = 'old' WHERE id = 150")
    await live(folded, source_of(guest, until_end=True, report=remarks))

    assert named == ("public.broken",)
    assert not differing(folded, guest, "broken")
    assert not differing(folded, guest, "orders")


KEYLESS = (
    *CREATE,
    "ALTER TABLE broken DROP CONSTRAINT broken_pkey, REPLICA IDENTITY FULL",
    "CREATE SCHEMA aside",
    "CREATE TABLE aside.lost AS SELECT * FROM pg_enum WHERE enumlabel = 'lost'",
)
MEND_KEYLESS = "INSERT INTO pg_enum SELECT * FROM aside.lost"
"""An update of the row would stream its former value, which cannot be written either."""


async def test_a_table_without_a_key_that_cannot_be_read_is_left_out_alone_and_keeps_its_rows(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable_tables, "RETRY_S", 0.05)
    guest.execute(*ORDERS, *KEYLESS)
    guest.publish()
    folded, remarks = Folded(), Remarks()
    await until_equal(folded, guest)
    before = folded.rows("broken")
    guest.execute(BREAK, "DELETE FROM orders WHERE id = 1")

    source = source_of(guest, report=remarks, heartbeat="100ms")
    async with aclosing(source.changes(dict(folded.positions))) as coming:
        folded.take(await anext(coming))
        await source.control(Control("again", "snapshot", BROKEN, {"action": "start"}))
        while ("public.broken",) not in remarks.left_out:
            folded.take(await anext(coming))
        guest.execute("INSERT INTO orders VALUES (-1, 0, 'new')", "INSERT INTO broken VALUES (201)")
        while not any(row["id"] == -1 for row in folded.rows("orders")):
            folded.take(await anext(coming))
        kept = folded.rows("broken")
        guest.execute(MEND_KEYLESS)
        while remarks.left_out[-1]:
            folded.take(await anext(coming))

    assert len(kept) in (len(before), len(before) + 1)
    assert [row for row in kept if row["id"] != 201] == before
    assert not differing(folded, guest, "orders") and not differing(folded, guest, "broken")


@pytest.mark.parametrize("parallel", [1, 4])
async def test_a_table_without_a_key_that_cannot_be_read_at_first_is_left_out_alone(
    guest: Guest, parallel: int
) -> None:
    guest.execute(*ORDERS, *KEYLESS, BREAK)
    guest.publish()
    folded, remarks, chosen = Folded(), Remarks(), {"parallel": parallel}

    await live(folded, source_of(guest, until_end=True, report=remarks, snapshot=chosen))
    named, without = remarks.left_out[-1], differing(folded, guest, "orders")
    guest.execute(MEND_KEYLESS)
    await live(folded, source_of(guest, until_end=True, report=remarks, snapshot=chosen))

    assert named == ("public.broken",) and not without
    assert not differing(folded, guest, "broken")


WIDE = (
    CREATE[0],
    "CREATE TABLE broken (id int PRIMARY KEY, state state, body text)",
    "INSERT INTO broken SELECT id, CASE id WHEN 80 THEN 'lost' ELSE 'new' END::state,"
    " repeat('x', 100000) FROM generate_series(1, 80) id",
)
"""Few pages of many megabytes, so that rows are emitted before the one that is lost is read."""


@pytest.mark.parametrize("key", ["PRIMARY KEY", "none"])
async def test_a_table_whose_last_row_cannot_be_read_is_left_out_from_the_next_start_on(
    guest: Guest, key: str
) -> None:
    dropped = KEYLESS[len(CREATE) : len(CREATE) + (key == "none")]
    guest.execute(*ORDERS, *WIDE, *dropped, *KEYLESS[len(CREATE) + 1 :], BREAK)
    guest.publish()
    folded, remarks, chosen = Folded(), Remarks(), {"chunk_rows": 100_000, "parallel": 1}

    with pytest.raises(SourceUnavailable, match="left out from the next start on"):
        await live(folded, source_of(guest, until_end=True, report=remarks, snapshot=chosen))
    folded.killed()
    await live(folded, source_of(guest, until_end=True, report=remarks, snapshot=chosen))
    named, without = remarks.left_out[-1], differing(folded, guest, "orders")
    guest.execute(MEND_KEYLESS)
    await live(folded, source_of(guest, until_end=True, report=remarks, snapshot=chosen))

    assert named == ("public.broken",) and not without
    assert not differing(folded, guest, "broken")
