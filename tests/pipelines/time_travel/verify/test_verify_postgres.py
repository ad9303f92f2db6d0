"""While people write to PostgreSQL, source, log and target are equal at one position of its log."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg

from headwater.core_log.foundation.clock import SystemClock
from headwater.pipelines.loops.assembly import make_source, run_task
from headwater.pipelines.reports import (
    Report,
    Reporter,
    RowsMoved,
    StateChanged,
    TaskState,
)
from headwater.pipelines.time_travel.verify.keyed_diff import DifferenceKind
from headwater.pipelines.time_travel.verify.result import ComparedSides, TableVerdict
from headwater.pipelines.time_travel.verify.table_selection import subjects_of
from headwater.pipelines.time_travel.verify.verify import Verifier
from tests.budget import PATIENCE_S
from tests.databases import database_in
from tests.pipelines.task_runs import task_run
from tests.pipelines.time_travel.world import World, tell

PIPELINE = """
pipeline: proven
source: {type: postgres, url: "ADDRESS", tables: [public.t], heartbeat: 500ms}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s}
"""
FILTER = """
transform: [{table: public.t, mask: {secret: hash}, filter: "id <> 13"}]
"""
NEW = "count(*) FROM t WHERE v = 'new'"
TRUNCATES = "_headwater_partition FROM t WHERE _headwater_op = 't' ORDER BY 1"
ROWS = 2_000
TABLE = """
CREATE TABLE t (id bigint PRIMARY KEY, v text, n numeric(12,2), at timestamptz, j jsonb, a int[],
    u uuid, b bytea, f float8, d date, secret text)
"""
FILL = f"""
INSERT INTO t SELECT i, 'row ' || i, i * 1.1, '2026-01-01'::timestamptz + i * interval '1 s',
    '{{"a": [1, null]}}', ARRAY[1, NULL, i], md5(i::text)::uuid, '\\x00ff', i / 3.0, '2026-01-01',
    'secret ' || i
FROM generate_series(1, {ROWS}) i
"""


@asynccontextmanager
async def running(world: World, *, told: Reporter = lambda _: None) -> AsyncIterator[None]:
    """The source and the sink, from the first rows in the target until the block ends."""
    has_begun = asyncio.Event()

    def hear(report: Report) -> None:
        told(report)
        if isinstance(report, RowsMoved) and report.task == "sql":
            has_begun.set()

    tasks = [
        asyncio.create_task(
            run_task(
                task_run(
                    world.loaded, task, world.log, clock=world.clock, report=hear, until_end=False
                )
            )
        )
        for task in ("source", "sql")
    ]
    try:
        await has_begun.wait()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await make_source(world.loaded, clock=world.clock).drop()


@asynccontextmanager
async def written_to(address: str) -> AsyncIterator[None]:
    """Somebody updates, deletes and inserts all the time."""

    async def write() -> None:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            number = 0
            while True:
                number += 1
                async with connection.transaction():
                    await connection.execute(
                        "UPDATE t SET v = v || 'x', n = n + 1 WHERE id = %s",
                        (number * 7 % ROWS + 1,),
                    )
                    await connection.execute("DELETE FROM t WHERE id = %s", (number * 11 % ROWS,))
                    await connection.execute("INSERT INTO t (id, v) VALUES (%s, 'new')",
                                             (ROWS + number,))  # fmt: skip

    writing = asyncio.create_task(write())
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.wait([writing])


async def verified(world: World, *, repairs: bool = False) -> dict[str, TableVerdict]:
    """By side."""
    subjects = await subjects_of(world.loaded, world.log)
    verifier = Verifier(world.loaded, world.log, clock=world.clock, is_running=True)
    return {
        each.side: each
        for each in await verifier.verify(subjects, ComparedSides(), repairs=repairs)
    }


def test_tables_under_load_are_equal_and_rows_missed_by_the_stream_are_found_and_mended(
    tmp_path: Path, postgres: str
) -> None:
    async def story(world: World, address: str) -> Any:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            await admin.execute(TABLE)
            await admin.execute(FILL)
            async with running(world), written_to(address):
                first = await verified(world)
                await _unseen(admin, "UPDATE t SET v = 'unseen' WHERE id BETWEEN 1500 AND 1510")
                second = await verified(world)
                mended = await verified(world, repairs=True)
                third = await verified(world)
        return first, second, mended, third

    with database_in(postgres, "proven") as address:
        first, second, mended, third = tell(
            tmp_path,
            PIPELINE.replace("ADDRESS", address) + FILTER,
            lambda world: story(world, address),
        )

    assert first["source"].compared.rows > ROWS / 2
    assert all(each.is_equal for each in first.values()), first
    assert second["source"].compared.counts[DifferenceKind.CHANGED] > 0
    assert mended["source"].is_equal, mended["source"].named
    assert all(each.is_equal for each in third.values()), third
    with closing(sqlite3.connect(tmp_path / "target.db")) as database:
        assert database.execute("SELECT count(*) FROM t WHERE id = 13").fetchone() == (0,)


async def _unseen(admin: psycopg.AsyncConnection[Any], statement: str) -> None:
    """Somebody does it while the publication tells nothing, as only that transaction sees it: a
    source that looked at it meanwhile would end."""
    [(name,)] = await (await admin.execute("SELECT pubname FROM pg_publication")).fetchall()
    alter = f'ALTER PUBLICATION "{name}" SET (publish = '
    async with admin.transaction():
        await admin.execute(f"{alter}'truncate')".encode())
        await admin.execute(statement.encode())
        await admin.execute(f"{alter}'insert,update,delete,truncate')".encode())


def test_a_row_that_went_unseen_is_mended_though_its_table_has_another_form_by_now(
    tmp_path: Path, postgres: str
) -> None:
    async def story(world: World, address: str) -> Any:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            await admin.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
            await admin.execute("INSERT INTO t SELECT i, 'old' FROM generate_series(1, 5) i")
            async with running(world):
                await admin.execute("ALTER TABLE t ADD COLUMN w int")
                await admin.execute("INSERT INTO t VALUES (9, 'new', 1)")
                await verified(world)
                await _unseen(admin, "DELETE FROM t WHERE id = 3")
                return await verified(world, repairs=True), await verified(world)

    with database_in(postgres, "evolved") as address:
        mended, after = tell(
            tmp_path, PIPELINE.replace("ADDRESS", address), lambda world: story(world, address)
        )

    assert (mended["source"].is_equal, mended["source"].repaired) == (True, 1)
    assert all(each.is_equal for each in after.values()), after


def test_a_table_that_is_gone_is_not_compared_with_the_source(
    tmp_path: Path, postgres: str
) -> None:
    async def story(world: World, address: str) -> Any:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            for name in ("t", "other"):
                await admin.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY)".encode())
                await admin.execute(f"INSERT INTO {name} VALUES (1), (2)".encode())
            async with running(world):
                subjects = await subjects_of(world.loaded, world.log)
                while len(subjects) < 2:
                    await asyncio.sleep(0.05)
                    subjects = await subjects_of(world.loaded, world.log)
                await admin.execute("DROP TABLE t")
                verifier = Verifier(
                    world.loaded, world.log, clock=SystemClock(), is_running=True, note=said.append
                )
                return await verifier.verify(subjects, ComparedSides(targets=False))

    said = list[str]()
    with database_in(postgres, "left") as address:
        verdicts = tell(
            tmp_path,
            PIPELINE.replace("ADDRESS", address).replace("public.t", "public.*"),
            lambda world: story(world, address),
        )

    assert [(str(each.subject.target), each.is_equal) for each in verdicts] == [
        ("public.other", True)
    ]
    assert said == [
        "public.t is no longer captured: its rows stay in targets, and are not compared with the "
        "source"
    ]


def test_a_change_log_of_several_partitions_is_equal_after_a_truncate(
    tmp_path: Path, postgres: str
) -> None:
    pipeline = PIPELINE.replace("0s}", "0s, deletes: hard, tables: {'*': {mode: append}}}")

    async def story(world: World, address: str) -> Any:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            await admin.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
            await admin.execute("INSERT INTO t SELECT i, 'old' FROM generate_series(1, 20) i")
            async with running(world):
                await admin.execute("BEGIN; TRUNCATE t; INSERT INTO t SELECT i, 'new' FROM"
                                    " generate_series(10, 30) i; COMMIT")  # fmt: skip
                async with asyncio.timeout(PATIENCE_S):
                    while _in_target(tmp_path, NEW) != [(21,)]:  # noqa: ASYNC110 - it tells nobody
                        await asyncio.sleep(0.05)
                return await verified(world), _in_target(tmp_path, TRUNCATES)

    with database_in(postgres, "emptied_log") as address:
        found, truncates = tell(
            tmp_path,
            (pipeline + "log: {partitions: 2}").replace("ADDRESS", address),
            lambda world: story(world, address),
        )

    assert all(each.is_equal for each in found.values()), found
    assert found["sql"].compared.rows == 21
    assert truncates == [(0,), (1,)]


def _in_target(directory: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(directory / "target.db")) as database:
        return database.execute(f"SELECT {question}").fetchall()


async def fill_once_followed(admin: psycopg.AsyncConnection[Any]) -> None:
    """No row that was there before is read."""
    is_followed = (
        "SELECT 1 FROM pg_replication_slots WHERE active AND database = current_database()"
    )
    while await (await admin.execute(is_followed)).fetchone() is None:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.05)
    await admin.execute("INSERT INTO t VALUES (1, 'one'), (2, '2'), (3, 'three')")


def test_values_of_an_older_type_of_a_column_differ_and_are_mended(
    tmp_path: Path, postgres: str
) -> None:
    """The server writes all rows anew under the new type, and this file lets nobody read them
    again."""
    pipeline = PIPELINE.replace("heartbeat", "snapshot: {mode: never}, heartbeat")

    async def story(world: World, address: str) -> Any:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            await admin.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
            filling = asyncio.ensure_future(fill_once_followed(admin))
            async with running(world):
                await filling
                await admin.execute(
                    "ALTER TABLE t ALTER v TYPE int USING (CASE v WHEN '2' THEN 2 END)"
                )
                await admin.execute("INSERT INTO t VALUES (4, 4)")
                first = await verified(world)
                return first, await verified(world, repairs=True)

    with database_in(postgres, "retyped") as address:
        first, mended = tell(
            tmp_path, pipeline.replace("ADDRESS", address), lambda world: story(world, address)
        )

    assert sorted(each["key"]["id"] for each in first["source"].named) == [1, 3]
    assert first["source"].compared.counts[DifferenceKind.CHANGED] == 2
    assert (mended["source"].is_equal, mended["source"].repaired) == (True, 2)


def test_a_table_without_a_key_is_compared_with_all_that_was_done_to_its_rows(
    tmp_path: Path, postgres: str
) -> None:
    pipeline = PIPELINE + "log: {cleanup: delete}"

    async def story(world: World, address: str) -> Any:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            await admin.execute("CREATE TABLE t (n int, v text)")
            await admin.execute("ALTER TABLE t REPLICA IDENTITY FULL")
            await admin.execute("INSERT INTO t VALUES (1, 'a'), (1, 'a'), (2, NULL)")
            async with running(world):
                await admin.execute("UPDATE t SET v = 'b' WHERE v = 'a'")
                await admin.execute("INSERT INTO t VALUES (3, 'c'), (3, 'c')")
                await admin.execute("DELETE FROM t WHERE n = 2")
                return await verified(world)

    with database_in(postgres, "keyless") as address:
        found = tell(tmp_path, pipeline.replace("ADDRESS", address), lambda w: story(w, address))

    assert all(each.is_equal for each in found.values()), found
    assert found["source"].compared.rows == 4


def test_a_transaction_that_the_comparison_waits_for_is_named(
    tmp_path: Path, postgres: str
) -> None:
    async def story(world: World, address: str) -> Any:
        noted, has_noted = list[str](), asyncio.Event()

        def note(text: str) -> None:
            noted.append(text)
            has_noted.set()

        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            await admin.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
            await admin.execute("INSERT INTO t VALUES (1, 'one')")
            await world.run()
            await admin.execute("BEGIN")
            await admin.execute("INSERT INTO t VALUES (2, 'two')")
            await admin.execute("PREPARE TRANSACTION 'left alone'")
            clock, subjects = world.clock, await subjects_of(world.loaded, world.log)
            verifier = Verifier(world.loaded, world.log, clock=clock, is_running=False, note=note)
            verifying = asyncio.create_task(verifier.verify(subjects, ComparedSides()))
            await has_noted.wait()
            await admin.execute("ROLLBACK PREPARED 'left alone'")
            return noted, await verifying

    with database_in(postgres, "waiting") as address:
        text = PIPELINE.replace("ADDRESS", address)
        noted, found = tell(tmp_path, text, lambda world: story(world, address))

    assert len(noted) == 1 and "once a prepared transaction is over" in noted[0]
    assert found and all(each.is_equal for each in found), found


def test_a_pipeline_that_has_just_ended_is_not_waited_for(tmp_path: Path, postgres: str) -> None:
    """Though the server has yet to see that its source went."""

    async def reader(address: str) -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(
            address, autocommit=True, replication="database"
        )
        connection.pgconn.send_query(
            b"START_REPLICATION SLOT headwater_proven LOGICAL 0/0"
            b" (proto_version '1', publication_names 'headwater_proven')"
        )
        return connection

    async def story(world: World, address: str) -> Any:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:

            async def until_active(names: str) -> None:
                question = f"SELECT FROM pg_replication_slots WHERE active AND slot_name {names}"
                while not await (await admin.execute(question.encode())).fetchall():
                    continue

            await admin.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
            await admin.execute("INSERT INTO t VALUES (1, 'one')")
            await world.run()
            left = await reader(address)
            await until_active("= 'headwater_proven'")
            verifying = asyncio.create_task(world.verified())
            await until_active("LIKE '%_look'")
            await asyncio.sleep(0.5)  # in which it asks whether anything waits in the slot
            await left.close()
            return await verifying

    with database_in(postgres, "ended") as address:
        found = tell(
            tmp_path, PIPELINE.replace("ADDRESS", address), lambda world: story(world, address)
        )

    assert all(each.is_equal for each in found.values()), found


def test_a_pipeline_that_stands_still_is_compared_unless_rows_wait_at_the_source(
    tmp_path: Path, postgres: str
) -> None:
    """The server's place moves on without anybody's change: looking alone moves it."""

    async def story(world: World, address: str) -> Any:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            await admin.execute(TABLE)
            await admin.execute(FILL)
            await world.run()
            await admin.execute("CREATE TABLE elsewhere AS SELECT 1 AS one")
            first = await world.verified()
            await admin.execute("UPDATE t SET v = 'waits' WHERE id = 3")
            second = await world.verified()
            await world.run()
            third = await world.verified()
            await make_source(world.loaded, clock=world.clock).drop()
        return first, second, third

    with database_in(postgres, "still") as address:
        first, second, third = tell(
            tmp_path, PIPELINE.replace("ADDRESS", address), lambda world: story(world, address)
        )

    assert all(each.is_equal for each in first.values()), first
    assert "headwater run" in second["public.t", "source"].problem
    assert all(each.is_equal for each in third.values()), third
    assert first["public.t", "source"].compared.rows == ROWS


def test_a_table_that_is_being_read_again_is_not_compared_with_its_source_or_mended(
    tmp_path: Path, postgres: str
) -> None:
    """It is left alone for a while before it is read."""

    async def story(world: World, address: str) -> Any:
        is_told = asyncio.Event()

        def hear(report: Report) -> None:
            if isinstance(report, StateChanged) and report.state is TaskState.REREADING:
                is_told.set()

        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            await admin.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
            await admin.execute("INSERT INTO t SELECT i, '7' FROM generate_series(1, 5) i")
            async with running(world, told=hear):
                await admin.execute("ALTER TABLE t ALTER v TYPE int USING v::int + 1")
                async with asyncio.timeout(PATIENCE_S):
                    await is_told.wait()
                return await verified(world, repairs=True)

    with database_in(postgres, "reread") as address:
        found = tell(
            tmp_path, PIPELINE.replace("ADDRESS", address), lambda world: story(world, address)
        )

    assert found["source"].is_reread
    assert found["source"].is_failed  # so that the exit code is 4
    assert not found["source"].repaired
    assert "the column v was altered and the table rewritten" in found["source"].problem
    assert found["sql"].is_equal
