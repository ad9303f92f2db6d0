"""A machine that is gone or cut off keeps its slot until the server has noticed; the run that takes
its source over says so and waits."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.server.connection import PgConnection, connect
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import former_reader, replication_slot
from headwater.connectors.postgres.slot.former_reader import FormerReader, once_free
from headwater.connectors.postgres.slot.replication_slot import WAITED_FOR_SLOT, reader_name
from headwater.connectors.postgres.slot.resume_check import check_resume
from headwater.connectors.source import Remark, SourceReport
from headwater.core_log.foundation.errors import Diagnostic, SourceUnavailable
from tests.connectors.postgres.snapshot.table_log import source_of
from tests.databases import Guest

NAME, PIPELINE = "headwater_shop", "shop"
ACTIVE = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{NAME}'"


async def line_of(guest: Guest, *, name: str = "headwater") -> PgConnection:
    settings = PostgresSettings(url=SecretStr(guest.url), tables=("public.*",))
    return await connect(settings, replication=True, name=name)


@asynccontextmanager
async def silent_reader(guest: Guest, *, ended_after: str) -> AsyncIterator[int]:
    """Streams under the name of a run of the pipeline, and answers nothing; the server ends it
    after that time."""
    line = await line_of(guest, name=reader_name(PIPELINE))
    await line.execute(f"SET wal_sender_timeout = '{ended_after}'".encode())
    line.pgconn.send_query(
        f"START_REPLICATION SLOT {NAME} LOGICAL 0/0"
        f" (proto_version '1', publication_names '{NAME}')".encode()
    )
    while not guest.value(ACTIVE):
        continue
    try:
        yield line.info.backend_pid
    finally:
        await line.close()


async def test_a_source_says_whom_it_waits_for_and_goes_on_when_the_server_gives_that_up(
    guest: Guest,
) -> None:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    guest.publish()
    positions: dict[str, str] = {}
    async with aclosing(source_of(guest, until_end=True).changes({})) as batches:
        async for batch in batches:
            positions.update(batch.positions)
    guest.execute("INSERT INTO orders VALUES (1)")
    said = list[SourceReport]()

    async with silent_reader(guest, ended_after="5s") as pid:
        source = source_of(guest, report=said.append, until_end=True)
        async with aclosing(source.changes(positions)) as batches:
            rows = sum([table.rows.num_rows async for batch in batches for table in batch.tables])

    told = [
        each.finding for each in said if isinstance(each, Remark) and each.name == WAITED_FOR_SLOT
    ]
    assert rows == 1
    assert told[0] is not None and told[-1] is None
    assert f"pid {pid}; the server ends it 60 s after" in told[0].problem
    assert f"pg_terminate_backend({pid})" in told[0].hint


async def test_a_reader_that_answers_the_server_is_another_run(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(former_reader, "MARGIN_SECONDS", 0.0)
    guest.publish()
    line, said = await line_of(guest), list[Diagnostic | None]()
    settings = PostgresSettings(url=SecretStr(guest.url), tables=("public.*",))
    await replication_slot.create(line, NAME, exports=False)
    await line.execute(b"SET wal_sender_timeout = '100ms'")

    def attempt() -> Any:
        return check_resume(line, settings, NAME, {})

    async with line, silent_reader(guest, ended_after="0") as pid:
        with pytest.raises(SourceUnavailable, match="another run of this pipeline") as refused:
            await once_free(attempt, line, slot=NAME, reader=reader_name(PIPELINE), say=said.append)

    assert refused.value.facts["pid"] == pid
    assert said[-1] is None


def test_a_server_that_waits_for_ever_is_told_so() -> None:
    finding = FormerReader(7, timeout_ms=0).finding()

    assert "does not end it by itself (wal_sender_timeout)" in finding.problem
    assert "pg_terminate_backend(7)" in finding.hint
