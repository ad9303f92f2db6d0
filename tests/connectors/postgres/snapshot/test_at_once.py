"""The source can be looked at as it is at one place, and that leaves nothing behind."""

from typing import Any

from core_log.table_schema import TableId
from tests.connectors.postgres.snapshot.folding import Folded, in_table, source_of, until_equal
from tests.connectors.postgres.snapshot.writing import ORDERS, writers
from tests.databases import Guest


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
    assert found.positions["stream"] > folded.positions["stream"]
    left = guest.value("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%_look'")
    assert not left
