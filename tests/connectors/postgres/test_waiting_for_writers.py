"""A slot is made once all have ended who were writing; the status says meanwhile who that is."""

import asyncio
from contextlib import aclosing

import psycopg

from headwater.connectors.postgres.slot.replication_slot import WAITED_FOR_SLOT
from headwater.connectors.source import Remark, SourceReport
from tests.connectors.postgres.snapshot.table_log import source_of
from tests.databases import Guest


async def test_a_writer_that_keeps_the_slot_waiting_is_reported(guest: Guest) -> None:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    guest.publish()
    said = list[SourceReport]()
    has_been_said = asyncio.Event()

    def report(each: SourceReport) -> None:
        said.append(each)
        if isinstance(each, Remark) and each.finding is not None:
            has_been_said.set()

    async def first_batch() -> None:
        async with aclosing(source_of(guest, report=report).changes({})) as batches:
            await anext(batches)

    with psycopg.connect(guest.owner) as late:
        pid = late.info.backend_pid
        late.execute("INSERT INTO orders VALUES (1)")
        reading = asyncio.ensure_future(first_batch())
        await has_been_said.wait()
        late.commit()
    await reading

    told = [
        each.finding for each in said if isinstance(each, Remark) and each.name == WAITED_FOR_SLOT
    ]
    first = next(each for each in told if each is not None)
    assert first.problem.endswith(f"writing now: pid {pid}")
    assert "pg_terminate_backend" in first.hint
    assert told[-1] is None
