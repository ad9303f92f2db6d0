"""The stream goes on at a server that has all that was read, and stops at one that has not."""

import shutil
import time
from pathlib import Path

import pytest
from pymysql.cursors import DictCursor

from headwater.core_log.foundation.errors import PositionLost
from scripts.embedded_mysql import EmbeddedMysql, Kind, embedded_mysql
from scripts.embedded_postgres import run_as_nobody
from tests.connectors.mysql.conftest import KINDS, MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once

BEGIN = {
    "mysql-9": "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {},"
    " SOURCE_USER = 'root', SOURCE_AUTO_POSITION = 1",
    "mysql-8.0": "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {},"
    " MASTER_USER = 'root', MASTER_AUTO_POSITION = 1",
    "mariadb": "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {},"
    " MASTER_USER = 'root', MASTER_USE_GTID = slave_pos",
}
LOOK_S = 0.02


def copy_of(server: EmbeddedMysql, directory: Path) -> EmbeddedMysql:
    """A server with the same history and an identity of its own, as a promoted replica."""
    server.stop()
    run_as_nobody(["cp", "-a", server.data, directory / "data"])
    (directory / "data" / "auto.cnf").unlink(missing_ok=True)
    other = EmbeddedMysql(directory, kind=server.kind, settings={"server-id": "2"})
    server.start()
    other.start()
    return other


def guest_of(server: EmbeddedMysql) -> MysqlGuest:
    return MysqlGuest(server, "shop", user="root")


@pytest.mark.crash
@pytest.mark.parametrize("kind", KINDS)
async def test_a_capture_goes_on_at_a_promoted_server(kind: Kind, tmp_path: Path) -> None:
    with embedded_mysql(kind) as first:
        first.execute(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1)",
        )  # fmt: skip
        told = await run_once(guest_of(first))
        first.execute("INSERT INTO shop.t VALUES (2)")
        directory = first.directory / "other"
        run_as_nobody(["mkdir", directory])
        second = copy_of(first, directory)
        try:
            second.execute("INSERT INTO shop.t VALUES (3)")
            await run_once(guest_of(second), told)
            assert told.letters("t") == "rcc"
            second.execute("DELETE FROM shop.t WHERE id = 1")
            await run_once(guest_of(second), told)
            first.execute("INSERT INTO shop.t VALUES (4)")

            with pytest.raises(PositionLost, match="lacks transactions"):
                await run_once(guest_of(first), MysqlStory(positions=dict(told.positions)))
        finally:
            second.kill()
            shutil.rmtree(directory)

    assert sorted(row["id"] for row in told.fold("t").values()) == [2, 3]


def replicate(source: EmbeddedMysql, replica: EmbeddedMysql) -> None:
    kind = "mariadb" if source.is_mariadb else source.kind
    is_new = kind == "mysql-9"
    replica.execute(BEGIN[kind].format(source.port), f"START {'REPLICA' if is_new else 'SLAVE'}")


def promote(replica: EmbeddedMysql) -> None:
    is_new = replica.kind == "mysql-9"
    replica.execute(
        f"STOP {'REPLICA' if is_new else 'SLAVE'}",
        *([] if replica.is_mariadb else ["SET GLOBAL super_read_only = OFF"]),
        "SET GLOBAL read_only = OFF",
    )


def wait_for_rows(replica: EmbeddedMysql, count: int) -> None:
    """Until the replica has them; fails as soon as its replication does."""
    tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'shop'"
    while not replica.execute(tables)[0][0] or replica.execute("SELECT count(*) FROM shop.t") != [
        (count,)
    ]:
        failure = replication_failure(replica)
        assert not failure, f"the replica will not get {count} rows: {failure}"
        time.sleep(LOOK_S)


def replication_failure(replica: EmbeddedMysql) -> str:
    """Why a replica gets nothing any more; '' while it works."""
    what = "REPLICA" if replica.kind == "mysql-9" else "SLAVE"
    with replica.connect() as connection, connection.cursor(DictCursor) as cursor:
        cursor.execute(f"SHOW {what} STATUS")
        [status] = cursor.fetchall()
    works = {"Yes", "Connecting", "Preparing"}
    stopped = [name for name in (f"{what.title()}_IO_Running", f"{what.title()}_SQL_Running")
               if status[name] not in works]  # fmt: skip
    said = [status[name] for name in ("Last_IO_Error", "Last_SQL_Error") if status[name]]
    return "; ".join(said or (f"{name} is {status[name]}" for name in stopped))


@pytest.mark.long("crash")
@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_has_stopped_is_not_waited_for(kind: Kind) -> None:
    with embedded_mysql(kind) as first, embedded_mysql(kind, settings={"server-id": "2"}) as second:
        replicate(first, second)
        first.execute("CREATE DATABASE shop", "SET sql_log_bin = 0",
                      "CREATE TABLE shop.t (id int PRIMARY KEY)", "SET sql_log_bin = 1",
                      "INSERT INTO shop.t VALUES (1)")  # fmt: skip

        with pytest.raises(AssertionError, match="will not get 1 rows"):
            wait_for_rows(second, 1)


@pytest.mark.crash
@pytest.mark.parametrize("kind", KINDS)
async def test_a_read_only_replica_is_captured_and_goes_on_for_its_source(kind: Kind) -> None:
    updates = "log-slave-updates" if kind in ("mariadb", "mariadb-11.8") else "log-replica-updates"
    settings = {"server-id": "2", updates if kind != "mysql-8.0" else "log-slave-updates": "ON"}
    with embedded_mysql(kind) as first, embedded_mysql(kind, settings=settings) as second:
        replicate(first, second)
        first.execute(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1)",
        )  # fmt: skip
        wait_for_rows(second, 1)
        second.execute(f"SET GLOBAL {'' if second.is_mariadb else 'super_'}read_only = ON")
        of_replica, of_source = await run_once(guest_of(second)), await run_once(guest_of(first))
        first.execute("INSERT INTO shop.t VALUES (2)")
        wait_for_rows(second, 2)
        await run_once(guest_of(second), of_replica)
        assert of_replica.letters("t") == "rc"

        first.kill()
        promote(second)
        second.execute("INSERT INTO shop.t VALUES (3)")
        url = f"mysql://root@127.0.0.1:{first.port},127.0.0.1:{second.port}"
        for told in (of_replica, of_source):
            await run_once(guest_of(second), told, url=url)

    assert of_replica.letters("t") == of_source.letters("t") == "rcc"
