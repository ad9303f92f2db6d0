"""Rows are read in the hours that the file allows, and changes are streamed at all hours."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headwater.connectors.postgres.catalog import FULL, CapturedTable, Catalog
from headwater.connectors.postgres.events.event_metadata import SourceOrigin
from headwater.connectors.postgres.settings import PostgresSettings, SnapshotSettings
from headwater.connectors.postgres.snapshot.incremental_snapshot import IncrementalSnapshot
from headwater.connectors.postgres.snapshot.progress import Chunk, LeafProgress
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper
from headwater.connectors.postgres.types.type_map import TypeMap
from headwater.connectors.snapshot.time_window import WAITING
from headwater.connectors.source import Remark, SourceContext, SourceReport
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from tests.connectors.postgres.snapshot.table_log import Folded, differing, in_table, source_of
from tests.connectors.postgres.snapshot.writer import ORDERS
from tests.connectors.postgres.source_session import ignore
from tests.databases import Guest
from tests.fakes import SimulatedClock

HOUR_MS = 3_600_000
NOON_MS = round(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp() * 1_000)
BY_NIGHT = {"between": "22:00-06:00", "parallel": 2}
NEW = "INSERT INTO orders VALUES (-1, 0, 'new')"


async def test_changes_come_by_day_and_rows_by_night(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    clock, folded, said = SimulatedClock(NOON_MS), Folded(), list[SourceReport]()

    def by_day() -> None:
        """Something came by the stream; and then it is evening."""
        assert [row["id"] for row in folded.rows("orders")] == [-1] and not folded.reads
        clock.advance(10 * HOUR_MS)

    await living(guest, clock, folded, said, statements=[NEW], when=[by_day])

    assert not differing(folded, guest, "orders")
    remarks = [each for each in said if isinstance(each, Remark) and each.name == WAITING]
    assert remarks[0].finding is not None and remarks[-1].finding is None
    assert "wait for the time window 22:00-06:00 (UTC)" in remarks[0].finding.problem


async def test_a_snapshot_that_the_morning_interrupts_goes_on_in_the_evening(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    clock, folded = SimulatedClock(NOON_MS - 8 * HOUR_MS), Folded()
    read_by_day = list[int]()

    def morning() -> None:
        clock.advance(8 * HOUR_MS)
        guest.execute(NEW)

    def evening() -> None:
        """Something came by the stream."""
        assert folded.rows("orders")[0]["id"] == -1
        read_by_day.append(len(folded.reads))
        clock.advance(10 * HOUR_MS)

    def is_new_there() -> bool:
        return any(row["id"] == -1 for row in folded.rows("orders"))

    await living(
        guest,
        clock,
        folded,
        [],
        when=[morning, evening],
        conditions=[lambda: bool(folded.reads), is_new_there],
    )

    assert not differing(folded, guest, "orders")
    assert 0 < read_by_day[0] < len(folded.rows("orders")) - 1
    assert len(folded.reads) == len(set(folded.reads)), "finished work is not read again"


@pytest.mark.parametrize("is_day", [True, False])
async def test_transactions_are_remembered_only_in_the_hours(is_day: bool) -> None:
    backfill = backfill_at(NOON_MS if is_day else NOON_MS + 12 * HOUR_MS)
    [job] = backfill._jobs.all()
    job.todo.append(Chunk(LeafProgress(7, 7, 1), (0, 1)))
    job.is_prepared = True
    job.watch.begin()

    reading = asyncio.ensure_future(backfill._fetching.run())
    await asyncio.sleep(0)
    has_rested = not job.watch.is_on
    reading.cancel()
    await asyncio.wait([reading])

    assert has_rested is is_day


@pytest.mark.parametrize("between", ["22-6", "25:00-06:00", "at night"])
def test_hours_that_are_none_are_refused(between: str) -> None:
    with pytest.raises(ValidationError):
        SnapshotSettings(between=between)


def backfill_at(now_ms: int) -> IncrementalSnapshot:
    """Of one table, of a server that is not there."""
    given = {"url": "postgresql://nowhere", "tables": ["*"], "snapshot": BY_NIGHT}
    settings = PostgresSettings.model_validate(given)
    context = SourceContext("shop", Path(), SimulatedClock(now_ms), ignore)
    reader = RowMapper(settings, context, SourceOrigin("shop", "shop"))
    schema = TableSchema(TableId("public", "t"), (Column("id", pa.int64()),), ("id",))
    table = CapturedTable(7, "r", schema, (), (), (), FULL, (), (), None, 0, is_readable=True)
    catalog = Catalog(settings.tables, settings.keys, "headwater_shop", TypeMap(settings))
    return IncrementalSnapshot(reader, catalog, [table], {}, reads_new=True)


async def living(
    guest: Guest,
    clock: SimulatedClock,
    folded: Folded,
    said: list[SourceReport],
    *,
    statements: list[str] | None = None,
    when: list[Callable[[], None]],
    conditions: list[Callable[[], bool]] | None = None,
) -> None:
    """One life, until the log is as the table. `statements` are run once it streams; `when` is done
    one after the other, as soon as its condition holds after a batch."""
    waiting = list(zip(when, conditions or [lambda: bool(folded.rows("orders"))], strict=True))
    source = source_of(guest, report=said.append, clock=clock, snapshot=BY_NIGHT)
    async with aclosing(source.changes({})) as coming:
        async for batch in coming:
            folded.take(batch)
            if statements:
                await guest.run(*statements)
                statements = None
            if waiting and waiting[0][1]():
                waiting.pop(0)[0]()
            elif not waiting and folded.rows("orders") == in_table(guest, "orders"):
                return
