"""The stream goes on at a server that has all that was read, and stops at one that has not."""

import shutil
from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import PositionLost
from scripts.embedded_mysql import EmbeddedMysql, Kind, embedded_mysql
from scripts.embedded_postgres import run_as_nobody
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once

KINDS: tuple[Kind, ...] = ("mysql-9", "mariadb")


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
