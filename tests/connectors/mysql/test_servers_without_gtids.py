"""Servers without GTIDs are followed by file and position, and only the same server goes on."""

import asyncio
from collections.abc import Iterator
from threading import Event

import pyarrow as pa
import pytest

from headwater.connectors.mysql.doctor import examine, examine_position
from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.changes import TableChanges
from scripts.embedded_mysql import EmbeddedMysql, Kind, embedded_mysql
from tests.connectors.mysql.conftest import KINDS, MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, running

OFF = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
OWN_KINDS: list[Kind] = [kind for kind in KINDS if kind.startswith("mysql")]
ON = (
    "SET GLOBAL enforce_gtid_consistency = ON",
    "SET GLOBAL gtid_mode = OFF_PERMISSIVE",
    "SET GLOBAL gtid_mode = ON_PERMISSIVE",
    "SET GLOBAL gtid_mode = ON",
)
OFF_AGAIN = (
    "SET GLOBAL gtid_mode = ON_PERMISSIVE",
    "SET GLOBAL gtid_mode = OFF_PERMISSIVE",
    "SET GLOBAL gtid_mode = OFF",
)


@pytest.fixture(scope="module", params=OWN_KINDS)
def plain_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedMysql]:
    with embedded_mysql(request.param, settings=OFF) as server:
        yield server


@pytest.fixture
def guest(plain_server: EmbeddedMysql, request: pytest.FixtureRequest) -> Iterator[MysqlGuest]:
    name = f"shop_{abs(hash(request.node.name)) % 10**9}"
    plain_server.execute(f"CREATE DATABASE {name}")
    yield MysqlGuest(plain_server, name, user="root")
    plain_server.execute(f"DROP DATABASE {name}")


async def first_rows(guest: MysqlGuest) -> MysqlStory:
    guest.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    return await run_once(guest)


def commits_of(changes: TableChanges) -> list[str]:
    commits = changes.commits
    return [str(commits)] if not isinstance(commits, pa.Array) else commits.to_pylist()


def rows_of(told: MysqlStory) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in told.fold("t").values())


async def test_the_stream_goes_on_by_file_and_position_also_in_later_files(
    guest: MysqlGuest,
) -> None:
    told = await first_rows(guest)
    guest.execute("INSERT INTO t VALUES (2, 2)", "FLUSH BINARY LOGS")
    guest.execute("UPDATE t SET v = 3 WHERE id = 1", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    await run_once(guest, told)
    guest.execute("DELETE FROM t WHERE id = 2")
    await run_once(guest, told)

    _, *streamed = [changes for batch in told.batches for changes in batch.tables]
    commits = [commit for each in streamed for commit in commits_of(each)]
    assert told.letters("t") == "rcud"
    assert rows_of(told) == [(1, 3)]
    assert told.positions["stream"] == told.positions["file"]
    assert {each.source["gtid"] for each in streamed} == {None}
    assert len(set(commits)) == 3


async def test_another_server_is_a_stop_that_says_why(guest: MysqlGuest) -> None:
    told = await first_rows(guest)
    told.positions["server"] = "6c27ed6d-7ee1-11e3-be39-6c626d957cff"

    with pytest.raises(PositionLost, match="no GTIDs, and the server is another one"):
        await run_once(guest, told)
    [finding] = examine_position(guest.settings(), told.positions)
    assert "another one" in finding.problem


async def test_a_purged_file_is_said_or_its_rows_are_read_again(guest: MysqlGuest) -> None:
    told = await first_rows(guest)
    guest.execute("INSERT INTO t VALUES (2, 2)", "FLUSH BINARY LOGS")
    [*_, last] = guest.execute("SHOW BINARY LOGS")
    guest.execute(f"PURGE BINARY LOGS TO '{last[0]}'")

    with pytest.raises(PositionLost, match="purged the file"):
        await run_once(guest, told)
    await run_once(guest, told, position_mismatch="resnapshot")
    assert rows_of(told) == [(1, 1), (2, 2)]


@pytest.mark.slow
async def test_a_log_that_was_reset_is_no_continuation_even_if_it_is_longer(
    guest: MysqlGuest,
) -> None:
    told = await first_rows(guest)
    guest.execute("FLUSH BINARY LOGS")
    await run_once(guest, told)
    file = guest.execute("SHOW BINARY LOGS")[-1][0]
    reset = "RESET MASTER" if guest.server.kind == "mysql-8.0" else "RESET BINARY LOGS AND GTIDS"
    guest.execute("DO SLEEP(1.1)", reset)  # the begin of a file has whole seconds
    while guest.execute("SHOW BINARY LOGS")[-1][0] != file:
        guest.execute("FLUSH BINARY LOGS")
    guest.execute("INSERT INTO t VALUES (2, 2)")

    # The server itself refuses a place inside of an event of the new file.
    with pytest.raises(PositionLost, match=r"created anew|lost changes"):
        await run_once(guest, told)
    await run_once(guest, told, position_mismatch="resnapshot")
    assert rows_of(told) == [(1, 1), (2, 2)]


async def test_a_prepared_transaction_of_an_earlier_file_is_read_again(guest: MysqlGuest) -> None:
    told = await first_rows(guest)
    guest.execute(
        "XA START 'kept'", "INSERT INTO t VALUES (2, 2)", "XA END 'kept'", "XA PREPARE 'kept'"
    )
    guest.execute("DO SLEEP(1.1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 3)")
    await run_once(guest, told)

    await run_once(guest, told)
    guest.execute("XA COMMIT 'kept'")
    await run_once(guest, told)

    assert told.letters("t") == "rcc"
    assert rows_of(told) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.slow
async def test_rows_that_are_read_while_others_commit_end_equal(guest: MysqlGuest) -> None:
    guest.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    guest.execute("INSERT INTO t VALUES " + ", ".join(f"({at}, 0)" for at in range(300)))
    stopped = Event()

    def write(first: int) -> None:
        with guest.server.connect(guest.database) as connection, connection.cursor() as cursor:
            at = first
            while not stopped.is_set():
                at += 7
                cursor.execute(f"UPDATE t SET v = v + 1 WHERE id = {at % 300}")
                cursor.execute(f"REPLACE INTO t VALUES ({1000 + at % 50}, {at})")
                cursor.execute(f"DELETE FROM t WHERE id = {1000 + at % 31}")

    writing = [asyncio.ensure_future(asyncio.to_thread(write, first)) for first in (0, 3)]
    try:
        async with running(guest, snapshot={"chunk_rows": 20}) as told:
            await told.came(rows=1_500)
    finally:
        stopped.set()
        await asyncio.gather(*writing)
    await run_once(guest, told, snapshot={"chunk_rows": 20})

    assert rows_of(told) == sorted(guest.execute("SELECT id, v FROM t"))


async def test_a_prepared_transaction_survives_a_restart(guest: MysqlGuest) -> None:
    told = await first_rows(guest)
    guest.execute("XA START 'a'", "INSERT INTO t VALUES (5, 5)", "XA END 'a'", "XA PREPARE 'a'")
    guest.execute("INSERT INTO t VALUES (6, 6)")
    await run_once(guest, told)
    guest.execute("XA COMMIT 'a'", "INSERT INTO t VALUES (7, 7)")
    await run_once(guest, told)

    assert rows_of(told) == [(1, 1), (5, 5), (6, 6), (7, 7)]
    assert told.letters("t") == "rccc"


async def test_the_doctor_says_that_no_other_server_can_go_on(guest: MysqlGuest) -> None:
    guest.execute("CREATE TABLE t (id int PRIMARY KEY)")

    findings = examine(guest.settings())

    assert [each.is_fatal for each in findings if "no GTIDs" in each.problem] == [False]
    assert not [each for each in findings if each.is_fatal]


async def test_a_position_has_gtids_from_the_first_file_on_that_is_written_with_them(
    guest: MysqlGuest,
) -> None:
    told = await first_rows(guest)
    by_file = told.positions["stream"]
    guest.execute(*ON, "INSERT INTO t VALUES (2, 2)", "FLUSH BINARY LOGS")
    await run_once(guest, told)
    by_gtid = told.positions["stream"]
    guest.execute("INSERT INTO t VALUES (3, 3)")
    await run_once(guest, told)
    guest.execute(*OFF_AGAIN, "INSERT INTO t VALUES (4, 4)")
    await run_once(guest, told)

    assert by_file.startswith("bin.") and told.positions["stream"].startswith("bin.")
    [[executed]] = guest.execute("SELECT @@global.gtid_executed")
    assert by_gtid.startswith(executed.split(":")[0])
    assert rows_of(told) == [(1, 1), (2, 2), (3, 3), (4, 4)]
