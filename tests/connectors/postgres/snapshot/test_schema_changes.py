"""Tables that get another form before their rows are read at first lose none of them."""

import asyncio
from contextlib import aclosing

import psycopg
import pytest

from headwater.connectors.source import Remark, SourceReport
from headwater.core_log.foundation.errors import SourceUnavailable
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    differing,
    live,
    source_of,
    until_equal,
)
from tests.databases import Guest

ONE_AFTER_THE_OTHER = {"parallel": 1}
LARGE = (
    "CREATE TABLE first (id int PRIMARY KEY, filler text)",
    "INSERT INTO first SELECT g, repeat('x', 500) FROM generate_series(1, 5000) g",
)
NEXT = (
    "CREATE TABLE next (id int PRIMARY KEY, amount int)",
    "INSERT INTO next SELECT g, g FROM generate_series(1, 100) g",
)
KEYLESS = (NEXT[0].replace(" PRIMARY KEY", ""), NEXT[1])


@pytest.mark.parametrize("tables", [NEXT, KEYLESS], ids=["key", "no key"])
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE next ALTER amount TYPE bigint",
        "ALTER TABLE next ADD COLUMN at timestamptz DEFAULT clock_timestamp()",
        "TRUNCATE next",
        "ALTER TABLE next DROP COLUMN amount, ADD COLUMN amount text DEFAULT 'abcd'",
        "ALTER TABLE next DROP COLUMN amount, ADD COLUMN amount text DEFAULT '0012'",
    ],
)
async def test_a_table_that_is_written_anew_before_its_turn_is_read_beside_the_stream(
    guest: Guest, tables: tuple[str, ...], change: str
) -> None:
    guest.execute(*LARGE, *tables, "ANALYZE")
    guest.publish()
    folded, count = Folded(), 0

    try:
        source = source_of(guest, until_end=True, snapshot=ONE_AFTER_THE_OTHER)
        async with aclosing(source.changes({})) as coming:
            async for batch in coming:
                folded.take(batch)
                count += 1
                if count == 2:
                    guest.execute(change)
    except SourceUnavailable as error:
        assert "changed" in error.problem
        folded.killed()
    await until_equal(folded, guest)

    found = sorted(each["id"] for each in folded.rows("next"))
    assert found == [number for [number] in guest.rows("SELECT id FROM next ORDER BY id")]
    assert not differing(folded, guest, "first")


async def test_a_column_that_comes_while_the_slot_is_made_is_read(guest: Guest) -> None:
    guest.execute(*NEXT)
    guest.publish()
    folded, waits = Folded(), asyncio.Event()

    def report(said: SourceReport) -> None:
        if isinstance(said, Remark) and said.finding is not None:
            waits.set()

    with psycopg.connect(guest.owner) as late:
        late.execute("CREATE TABLE other (id int PRIMARY KEY)")
        reading = asyncio.ensure_future(
            live(folded, source_of(guest, report=report, until_end=True))
        )
        await waits.wait()
        guest.execute("ALTER TABLE next ADD COLUMN more text", "UPDATE next SET more = 'x' || id")
        late.commit()
    await reading

    assert not differing(folded, guest, "next")
