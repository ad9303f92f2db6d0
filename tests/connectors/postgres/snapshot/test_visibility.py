"""A snapshot sees the transactions that PostgreSQL says it sees."""

from typing import Any

import numpy as np
import psycopg

from headwater.connectors.postgres.server.lsn import EPOCH, PgSnapshot
from headwater.connectors.postgres.snapshot.initial_snapshot import take_on
from tests.budget import IS_LONG
from tests.connectors.postgres.snapshot.writer import AUDIT, ORDERS, writers
from tests.databases import Guest

SLOTS = 500 if IS_LONG else 100


def test_numbers_of_transactions_are_told_apart_where_they_begin_anew() -> None:
    snapshot = PgSnapshot(EPOCH - 5, EPOCH + 10, frozenset({EPOCH - 5, EPOCH + 3}))
    xids = np.array([EPOCH - 6, EPOCH - 5, EPOCH - 4, 0, 3, 4, 9, 10, 11], np.int64) % EPOCH

    seen = snapshot.sees(xids)

    assert seen.tolist() == [True, False, True, True, False, True, True, False, False]
    assert PgSnapshot.parse(str(snapshot)) == snapshot


def test_everything_below_the_beginning_is_seen_where_the_end_comes_before_it() -> None:
    snapshot = PgSnapshot.parse("63709:63699:")

    assert snapshot.sees(np.array([63698, 63699, 63708, 63709])).tolist() == [
        True,
        True,
        True,
        False,
    ]


async def test_rows_that_the_snapshot_of_a_slot_shows_are_of_transactions_it_sees(
    guest: Guest,
) -> None:
    """About one in eighty slots, made while users write, has a snapshot that ends before it
    begins, and shows rows of transactions between."""
    guest.execute(*ORDERS, *AUDIT)
    make = b"CREATE_REPLICATION_SLOT made%d TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"

    with (
        psycopg.connect(f"{guest.owner}?replication=database", autocommit=True) as line,
        writers(guest, seed=1),
    ):
        for number in range(SLOTS):
            made = line.pgconn.exec_(make % number).get_value(0, 2)
            assert made is not None, "a slot is made with a snapshot"
            async with await psycopg.AsyncConnection.connect(guest.owner) as connection:
                await take_on(connection, made.decode())
                [[text]] = await rows_of(connection, "SELECT pg_current_snapshot()::text")
                shown = await rows_of(connection, "SELECT DISTINCT xmin::text::int8 FROM orders")
            xids = np.array(shown, np.int64).ravel()
            assert PgSnapshot.parse(text).sees(xids).all(), text
            line.pgconn.exec_(b"DROP_REPLICATION_SLOT made%d" % number)


async def rows_of(connection: psycopg.AsyncConnection, query: str) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query.encode())).fetchall()
