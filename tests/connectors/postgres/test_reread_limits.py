"""What the file says of reading rows holds for a table that is read again, too."""

from contextlib import aclosing

import pytest

from headwater.connectors.snapshot.time_window import RateLimit
from headwater.core_log.model.changes import Phase
from tests.connectors.postgres.schema_history.test_read_again import ROWS
from tests.connectors.postgres.test_held_rereads import REWRITTEN, Source
from tests.connectors.snapshot.test_time_window import BY_NIGHT, HOUR_MS, NOON_MS
from tests.databases import Guest
from tests.fakes import SimulatedClock


async def test_rows_that_are_read_again_pass_the_throttle(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, passed = Source(guest), list[int]()
    source.create()
    await source.to_end()

    async def passing(_: RateLimit, rows: int) -> None:
        passed.append(rows)

    monkeypatch.setattr(RateLimit, "passing", passing)
    guest.execute(REWRITTEN)
    await source.to_end()

    assert sum(passed) == ROWS
    assert source.is_equal


async def test_a_table_is_read_again_in_the_hours_that_the_file_allows(guest: Guest) -> None:
    clock = SimulatedClock(NOON_MS)
    source = Source(guest, clock=clock)
    source.create()
    await source.to_end()
    source.folded.reads.clear()
    source.settings["snapshot"] = BY_NIGHT

    guest.execute(REWRITTEN)
    await source.until(Phase.STARTED)
    guest.execute("INSERT INTO items (id) VALUES (1000)")
    async with aclosing(source.lives()) as lives:
        async for _ in lives:
            if any(row["id"] == 1000 for row in source.folded.rows("items")):
                break
    read_by_day = len(source.folded.reads)
    clock.advance(11 * HOUR_MS)
    await source.to_end()

    assert not read_by_day
    assert source.is_equal


async def test_a_table_that_is_read_again_rests_and_goes_on(guest: Guest) -> None:
    source = Source(guest)
    source.create()
    await source.to_end()
    guest.execute(REWRITTEN)
    source.context["settle_ms"] = HOUR_MS

    await source.until(Phase.PENDING, "pause")
    source.folded.reads.clear()
    await source.to_end()
    read_at_rest = len(source.folded.reads)
    source.context["settle_ms"] = 0
    await source.until(Phase.COMPLETE, "resume")

    assert not read_at_rest
    assert source.is_equal


async def test_a_reading_that_is_killed_after_its_start_counts_once(guest: Guest) -> None:
    source = Source(guest)
    source.create()
    await source.to_end()
    guest.execute(REWRITTEN)

    for _ in range(4):
        await source.until(Phase.STARTED)
    await source.to_end()

    assert source.is_equal
