"""The source can be looked at as it is at one place, and that leaves nothing behind."""

import asyncio
from contextlib import ExitStack, aclosing
from typing import Any

import pytest

from headwater.connectors.postgres.server.lsn import parse_lsn
from headwater.core_log.foundation.errors import SourceUnavailable
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.snapshot.table_log import Folded, in_table, source_of, until_equal
from tests.connectors.postgres.snapshot.writer import ORDERS, writers
from tests.connectors.postgres.source_session import seen_late
from tests.databases import Guest

PATIENCE_S = 60
"""A small part of a heartbeat, and long for a server at rest."""


async def test_tables_are_read_as_they_are_at_one_place_of_the_stream(guest: Guest) -> None:
    guest.execute(*ORDERS, "CREATE TABLE audit (at int, what text)")
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    before = in_table(guest, "orders")
    rows: list[dict[str, Any]] = []

    async with source_of(guest).snapshot(folded.positions) as found:
        with writers(guest, seed=1):
            async for changes in found.rows(TableId("public", "orders")):
                rows += changes.rows.to_pylist()
        empty = [each async for each in found.rows(TableId("public", "audit"))]

    assert sorted(rows, key=repr) == before
    assert not empty
    assert parse_lsn(found.positions["stream"]) > parse_lsn(folded.positions["stream"])
    guest.until_nobody_streams()
    left = guest.value("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%_look'")
    assert not left


async def test_a_second_reader_is_let_in_before_the_server_sees_that_the_first_has_gone(
    guest: Guest,
) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    looks = "SELECT active_pid FROM pg_replication_slots WHERE slot_name LIKE '%_look'"

    with ExitStack() as later:
        async with source_of(guest).snapshot({}) as first:
            later.enter_context(seen_late(guest.value(looks)))
        async with source_of(guest).snapshot({}) as second:
            pass

    assert parse_lsn(first.positions["stream"]) <= parse_lsn(second.positions["stream"])


async def test_a_follower_of_a_server_at_rest_reports_the_position_at_once(
    guest: Guest,
) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    follower = source_of(guest, heartbeat="1h")

    async with aclosing(follower.changes(dict(folded.positions))) as coming:
        first = asyncio.ensure_future(anext(coming))
        async with source_of(guest).snapshot(folded.positions) as found:
            wanted = parse_lsn(found.positions["stream"])
            async with asyncio.timeout(PATIENCE_S):
                batches = [await first]
                while parse_lsn(batches[-1].positions.get("stream", "0/0")) < wanted:
                    batches.append(await anext(coming))

    assert not any(batch.tables or batch.notices for batch in batches), "it is no event"


async def test_a_table_that_is_written_anew_meanwhile_is_not_taken_for_an_empty_one(
    guest: Guest,
) -> None:
    guest.execute(*ORDERS)
    guest.publish()

    async with source_of(guest).snapshot({}) as found:
        guest.execute("ALTER TABLE orders ALTER amount TYPE bigint")
        with pytest.raises(SourceUnavailable, match="was changed"):
            async for _ in found.rows(TableId("public", "orders")):
                pass
