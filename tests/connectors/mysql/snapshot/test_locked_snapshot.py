"""The first snapshot with a lock: its rows are those of one position, and come before changes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pymysql
import pytest
from pydantic import ValidationError

from headwater.connectors.mysql.doctor import examine
from headwater.connectors.mysql.snapshot import table_readers
from headwater.connectors.mysql.snapshot.chunk_reader import read_chunk
from headwater.core_log.foundation.errors import SourceRejected
from tests.connectors.mysql.conftest import RIGHTS, MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, running

TABLES = ("t0", "t1", "keyless")
LOCKED = {"locking": "minimal", "chunk_rows": 3, "parallel": 2}
LOCKERS = {"all": "GRANT RELOAD ON *.* TO {}", "tables": "GRANT LOCK TABLES ON {db}.* TO {}"}


@pytest.fixture(params=LOCKERS)
def locker(request: pytest.FixtureRequest, mysql_guest: MysqlGuest) -> Iterator[MysqlGuest]:
    """A user who may lock all tables of the server, or only some."""
    with user_with(mysql_guest, LOCKERS[request.param]) as guest:
        yield guest


@contextmanager
def user_with(guest: MysqlGuest, *grants: str) -> Iterator[MysqlGuest]:
    name = f"locker_{guest.database}"
    guest.execute(f"CREATE USER {name}@'%' IDENTIFIED BY 'secret'")
    for grant in (RIGHTS[guest.server.is_mariadb], *grants):
        guest.execute(grant.format(f"{name}@'%'", db=guest.database))
    yield MysqlGuest(guest.server, guest.database, f"{name}:secret")
    guest.execute(f"DROP USER {name}@'%'")


def make_shop(guest: MysqlGuest) -> None:
    guest.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)" for name in TABLES[:2]),
        "CREATE TABLE keyless (id int, n int)",
        *(f"INSERT INTO {name} VALUES {', '.join(f'({n}, 0)' for n in range(10))}"
          for name in TABLES),
    )  # fmt: skip


def kinds_in_order(story: MysqlStory) -> str:
    """`r` for rows that were read, `c` for changes; repeated letters once."""
    letters = [letter for letter, _ in story.events() if letter != "t"]
    found = "".join("r" if letter == "r" else "c" for letter in letters)
    return "".join(each for at, each in enumerate(found) if at == 0 or each != found[at - 1])


async def test_rows_of_all_connections_are_of_one_moment_and_precede_changes(
    locker: MysqlGuest, mysql_guest: MysqlGuest
) -> None:
    """Transactions move amounts between three tables: no moment shows another sum."""
    make_shop(mysql_guest)
    is_over = asyncio.Event()

    def move() -> None:
        connection = mysql_guest.server.connect(mysql_guest.database)
        with connection, connection.cursor() as cursor:
            for at in range(100_000):
                if is_over.is_set():
                    return
                with suppress(pymysql.err.OperationalError):  # a victim of LOCK TABLES
                    connection.begin()
                    for name, sign in zip(TABLES, ("+ 2", "- 1", "- 1"), strict=True):
                        cursor.execute(f"UPDATE {name} SET n = n {sign} WHERE id = {at % 10}")
                    connection.commit()

    moving = asyncio.ensure_future(asyncio.to_thread(move))
    try:
        async with running(locker, snapshot=LOCKED) as story:
            await story.came(rows=100)
    finally:
        is_over.set()
        await moving

    read = [row["n"] for letter, row in story.events() if letter == "r"]
    assert len(read) == 30
    assert sum(read) == 0
    assert kinds_in_order(story) == "rc"
    told = await run_once(locker, story)
    for name in TABLES[:2]:
        rows = mysql_guest.execute(f"SELECT id, n FROM {name} ORDER BY id")
        assert sorted((row["id"], row["n"]) for row in told.fold(name).values()) == list(rows)


async def test_nobody_waits_for_the_lock_once_rows_are_read(
    locker: MysqlGuest, mysql_guest: MysqlGuest
) -> None:
    make_shop(mysql_guest)
    async with running(locker, snapshot={**LOCKED, "max_rows_per_second": 1}) as story:
        await story.came(rows=1)
        mysql_guest.execute("INSERT INTO t0 VALUES (100, 0)", "CREATE TABLE other (id int)")

    assert "c" not in story.letters()


async def test_a_lock_that_is_not_granted_in_time_stops_the_source(
    locker: MysqlGuest, mysql_guest: MysqlGuest
) -> None:
    make_shop(mysql_guest)
    with mysql_guest.server.connect(mysql_guest.database) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLES t0 WRITE")
        with pytest.raises(SourceRejected, match="not locked in time"):
            await run_once(locker, snapshot={**LOCKED, "lock_timeout": "1s"})


async def test_a_lock_that_is_not_granted_in_time_is_done_without_where_the_file_says_so(
    locker: MysqlGuest, mysql_guest: MysqlGuest, caplog: pytest.LogCaptureFixture
) -> None:
    make_shop(mysql_guest)
    with mysql_guest.server.connect(mysql_guest.database) as holder, holder.cursor() as cursor:
        holder.begin()
        cursor.execute("UPDATE t0 SET n = 1")
        cursor.execute("LOCK TABLES t1 WRITE, t0 READ, keyless READ")
        reading = asyncio.ensure_future(
            run_once(
                locker,
                snapshot={**LOCKED, "lock_timeout": "1s", "when_not_locked": "continue"},
            )
        )
        while "without a lock" not in caplog.text:
            assert not reading.done(), "it waits for the lock first"
            await asyncio.sleep(0.01)
        cursor.execute("UNLOCK TABLES")
        told = await reading

    assert len(told.fold("t0")) == len(told.fold("t1")) == 10


async def test_a_user_who_may_not_lock_is_told_the_grant(mysql_guest: MysqlGuest) -> None:
    make_shop(mysql_guest)
    with user_with(mysql_guest) as guest:
        with pytest.raises(SourceRejected, match="may not lock") as refused:
            await run_once(guest, snapshot=LOCKED)
        findings = examine(guest.settings(snapshot=LOCKED))
        told = await run_once(guest, snapshot={**LOCKED, "when_not_locked": "continue"})

    assert "LOCK TABLES" in (refused.value.hint or "")
    assert any("may not lock" in each.problem and each.is_fatal for each in findings)
    assert len(told.fold("t0")) == 10


async def test_a_killed_snapshot_with_a_lock_goes_on_without_one(
    locker: MysqlGuest, mysql_guest: MysqlGuest
) -> None:
    """Its transactions are gone: the rest is read beside the stream."""
    make_shop(mysql_guest)
    async with running(locker, snapshot={**LOCKED, "max_rows_per_second": 10}) as story:
        await story.came(rows=3)
    places = [at for at, batch in enumerate(story.batches) if batch.positions]
    told = MysqlStory()
    for batch in story.batches[: places[-1] + 1]:
        told.take(batch)
    mysql_guest.execute("UPDATE t0 SET n = 7", "DELETE FROM t1 WHERE id < 5")

    await run_once(mysql_guest, told)

    assert {row["n"] for row in told.fold("t0").values()} == {7}
    assert sorted(row["id"] for row in told.fold("t1").values()) == [5, 6, 7, 8, 9]


async def test_a_table_that_changes_its_form_behind_the_lock_is_read_beside_the_stream(
    locker: MysqlGuest, mysql_guest: MysqlGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_shop(mysql_guest)
    read, is_first = read_chunk, [True]

    def after_ddl(*given: Any, **more: Any) -> Any:
        if is_first.pop() if is_first else False:
            mysql_guest.execute("CREATE TABLE t2 LIKE t1", "RENAME TABLE t1 TO t3, t2 TO t1")
        return read(*given, **more)

    monkeypatch.setattr(table_readers, "read_chunk", after_ddl)

    told = await run_once(locker, snapshot={**LOCKED, "parallel": 1})
    told = await run_once(locker, told)

    assert told.fold("t1") == {}
    assert len(told.fold("t0")) == len(told.fold("t3")) == 10


def test_hours_of_reading_and_open_transactions_exclude_each_other(
    mysql_guest: MysqlGuest,
) -> None:
    with pytest.raises(ValidationError, match="between"):
        mysql_guest.settings(snapshot={**LOCKED, "between": "22:00-06:00"})
