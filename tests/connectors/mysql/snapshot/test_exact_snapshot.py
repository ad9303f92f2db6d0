"""A snapshot beside writers shows exactly what the stream brings up to its position."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headwater.connectors.mysql.position import STREAM
from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids
from headwater.connectors.mysql.source import MysqlSource
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import TableId
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, running, source_context

SNAPSHOTS, WRITERS = 8, 2


@contextmanager
def writing(guest: MysqlGuest) -> Iterator[None]:
    """Several sessions change the same rows without a pause."""
    is_over, failures = threading.Event(), list[BaseException]()

    def write(number: int) -> None:
        at = 0
        try:
            with guest.server.connect(guest.database) as session, session.cursor() as cursor:
                while not is_over.is_set():
                    at += 1
                    cursor.execute(f"INSERT INTO t VALUES ({at * WRITERS + number}, {number})")
                    cursor.execute(f"UPDATE t SET n = n + 1 WHERE id % 7 = {at % 7}")
                    if not at % 5:
                        cursor.execute(f"DELETE FROM t WHERE id % 11 = {at % 11}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=[number]) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


async def rows_of(guest: MysqlGuest) -> tuple[Mapping[str, str], dict[int, int]]:
    """The position of a snapshot, and its rows."""
    source = MysqlSource(guest.settings(), source_context())
    async with source.snapshot({}) as snapshot:
        rows: dict[int, int] = {}
        async for changes in snapshot.rows(TableId(guest.database, "t")):
            rows |= {row["id"]: row["n"] for row in changes.rows.to_pylist()}
        return snapshot.positions, rows


def streamed_until(told: MysqlStory, position: str, *, is_mariadb: bool) -> dict[int, int]:
    rows: dict[int, int] = {}
    for batch in told.batches:
        for changes in batch.tables:
            for gtid, operation, row in _each(changes):
                if not _is_in(gtid, position, is_mariadb=is_mariadb):
                    continue
                if operation == Operation.DELETE:
                    del rows[row["id"]]
                else:
                    rows[row["id"]] = row["n"]
    return rows


def _each(changes: TableChanges) -> Iterator[tuple[str, int, dict[str, Any]]]:
    commits, operations = changes.commits, changes.operations.to_pylist()
    gtids = commits.to_pylist() if isinstance(commits, pa.Array) else [commits] * len(changes)
    return zip(gtids, operations, changes.rows.to_pylist(), strict=True)


def _is_in(gtid: str, position: str, *, is_mariadb: bool) -> bool:
    if is_mariadb:
        return MariadbGtids.parse(gtid).is_within(MariadbGtids.parse(position))
    return GtidSet.parse(gtid).is_within(GtidSet.parse(position))


async def test_a_snapshot_beside_writers_has_what_the_stream_brings_up_to_its_position(
    mysql_guest: MysqlGuest,
) -> None:
    is_mariadb = mysql_guest.server.is_mariadb
    mysql_guest.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    empty = await run_once(mysql_guest)

    async with running(mysql_guest, empty.positions) as told:
        with writing(mysql_guest):
            taken = []
            for _ in range(SNAPSHOTS):
                taken.append(await rows_of(mysql_guest))
                await asyncio.sleep(0.02)
        mysql_guest.execute("INSERT INTO t VALUES (-1, 0)")
        await told.came_last("t", -1)

    assert any(rows for _, rows in taken)
    for positions, rows in taken:
        assert rows == streamed_until(told, positions[STREAM], is_mariadb=is_mariadb)


async def test_a_snapshot_knows_whether_captured_rows_have_changed_since(
    mysql_guest: MysqlGuest,
) -> None:
    mysql_guest.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)")
    told = await run_once(mysql_guest)
    source = MysqlSource(mysql_guest.settings(), source_context())

    async def has_changed() -> bool | None:
        async with source.snapshot({}) as snapshot:
            assert snapshot.has_changes_since is not None
            return await snapshot.has_changes_since(told.positions)

    assert not await has_changed()
    mysql_guest.server.execute(
        "CREATE DATABASE IF NOT EXISTS not_captured",
        "CREATE TABLE not_captured.t (id int PRIMARY KEY)",
        "INSERT INTO not_captured.t VALUES (1)",
        "DROP DATABASE not_captured",
    )
    assert not await has_changed()
    mysql_guest.execute("TRUNCATE t")
    assert await has_changed()
    await run_once(mysql_guest, told)
    assert not await has_changed()
    mysql_guest.execute("INSERT INTO t VALUES (2, 1)")
    assert await has_changed()
    await run_once(mysql_guest, told)
    mysql_guest.execute(
        "XA START 'x'", "INSERT INTO t VALUES (3, 1)", "XA END 'x'", "XA COMMIT 'x' ONE PHASE"
    )
    assert await has_changed()
    await run_once(mysql_guest, told)
    assert not await has_changed()
    mysql_guest.execute("ALTER TABLE t ADD COLUMN m int DEFAULT 5")
    assert await has_changed()
