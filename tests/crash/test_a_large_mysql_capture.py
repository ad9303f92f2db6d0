"""MySQL at its limits: five million rows in one transaction, 500 tables, a stalled connection."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from headwater.connectors.mysql.source import MysqlSource
from headwater.core_log.foundation.errors import SourceUnavailable
from scripts.embedded_mysql import EmbeddedMysql, Kind, embedded_mysql
from tests.budget import IS_LONG
from tests.connectors.mysql.conftest import KINDS, MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, running, source_context

ROWS, STATEMENT_ROWS = (5_000_000, 50_000) if IS_LONG else (0, 0)
TABLES = 500
GROWTH_MB_MAX = 250
"""The transaction has 800 MB; 166 were measured."""
STALLED_AFTER_BYTES = 200_000
NEVER = {"mode": "never"}


def guest_of(server: EmbeddedMysql) -> MysqlGuest:
    return MysqlGuest(server, "shop", user="root")


@pytest.mark.long("crash")
@pytest.mark.parametrize("kind", KINDS)
async def test_five_million_rows_of_one_transaction_pass_through_bounded_memory(kind: Kind) -> None:
    with embedded_mysql(kind, settings={"innodb-buffer-pool-size": "1G"}) as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id int PRIMARY KEY, v varchar(200))",
            "CREATE TABLE shop.t2 (id int PRIMARY KEY, v varchar(200))",
        )
        guest = guest_of(server)
        told = await run_once(guest, snapshot=NEVER)
        with server.connect("shop") as connection, connection.cursor() as cursor:
            values = ", ".join(f"({at}, REPEAT('x', 150))" for at in range(STATEMENT_ROWS))
            cursor.execute(f"INSERT INTO t2 VALUES {values}")
            connection.begin()
            for first in range(0, ROWS, STATEMENT_ROWS):
                cursor.execute(f"INSERT INTO t SELECT id + {first}, v FROM t2")
            connection.commit()

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count, places = await counted(guest, told)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert count == ROWS
    assert places == 1
    assert (after - before) / 1024 < GROWTH_MB_MAX


async def counted(guest: MysqlGuest, told: MysqlStory) -> tuple[int, int]:
    """Rows of the large table, and the batches with a position between its first row and the end of
    its transaction."""
    source = MysqlSource(guest.settings(snapshot=NEVER), source_context(until_end=True))
    count = places = 0
    async with aclosing(source.changes(dict(told.positions))) as batches:
        async for batch in batches:
            rows = sum(len(each) for each in batch.tables if each.schema.table.name == "t")
            count += rows
            places += bool(rows and batch.positions)
    return count, places


@pytest.mark.long("crash")
@pytest.mark.parametrize("kind", KINDS)
async def test_five_hundred_tables_are_read_and_followed(kind: Kind) -> None:
    with embedded_mysql(kind) as server:
        server.execute("CREATE DATABASE shop")
        guest = guest_of(server)
        guest.execute(*(f"CREATE TABLE t{at} (id int PRIMARY KEY, v int)" for at in range(TABLES)))
        guest.execute(*(f"INSERT INTO t{at} VALUES (1, {at})" for at in range(TABLES)))
        told = await run_once(guest)
        guest.execute(*(f"UPDATE t{at} SET v = v + 1" for at in range(TABLES)))
        await run_once(guest, told)

    assert len(told.events()) == 2 * TABLES
    assert all([*told.fold(f"t{at}").values()] == [{"id": 1, "v": at + 1}] for at in range(TABLES))


class StallingProxy:
    """Passes on what a server sends until so many bytes have come, and then nothing more."""

    def __init__(self, port: int) -> None:
        self._port, self.is_stalled = port, asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        pumps = [
            asyncio.ensure_future(self._pump(reader, back, None)),
            asyncio.ensure_future(self._pump(there, writer, STALLED_AFTER_BYTES)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for end in (writer, back):
            end.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, left: int | None
    ) -> None:
        while data := await source.read(1 << 16):
            if left is not None:
                left -= len(data)
                if left < 0:
                    self.is_stalled.set()
                    await asyncio.Event().wait()  # until it is cancelled
            sink.write(data)
            await sink.drain()

    def stop(self) -> None:
        for each in self._tasks:
            each.cancel()


@asynccontextmanager
async def stalling_before(port: int) -> AsyncIterator[tuple[int, StallingProxy]]:
    proxy = StallingProxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], proxy
    finally:
        proxy.stop()
        server.close()


@pytest.mark.long("crash")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_connection_that_stalls_is_given_up_and_nothing_is_lost(kind: Kind) -> None:
    with embedded_mysql(kind) as server:
        server.execute("CREATE DATABASE shop")
        guest = guest_of(server)
        guest.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(100))")
        told = await run_once(guest, snapshot=NEVER)
        for first in range(0, 20_000, 1_000):
            rows = ", ".join(f"({at}, REPEAT('y', 50))" for at in range(first, first + 1_000))
            guest.execute(f"INSERT INTO t VALUES {rows}")
        async with stalling_before(server.port) as (port, proxy):
            url = f"mysql://root@127.0.0.1:{port}"
            with pytest.raises(SourceUnavailable, match="stopped sending"):
                async with running(guest, told.positions, url=url, snapshot=NEVER) as more:
                    await more.ended()
            assert proxy.is_stalled.is_set()
        places = [at for at, batch in enumerate(more.batches) if batch.positions]
        for batch in more.batches[: places[-1] + 1]:
            told.take(batch)
        await run_once(guest, told, snapshot=NEVER)

    assert sorted(row["id"] for row in told.fold("t").values()) == list(range(20_000))
    assert told.letters("t") == "c" * 20_000
