"""Whoever is killed between MySQL or MariaDB and the targets: they end equal to the source."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random

import pytest

from scripts.embedded_mysql import EmbeddedMysql, embedded_mysql
from scripts.embedded_postgres import embedded_postgres
from tests.connectors.mysql.conftest import KINDS
from tests.crash.audit import sinks_of
from tests.crash.audited_life import (
    AUDIT_SEED,
    FEW,
    Audited,
    live_as_long_as_there_is_time,
    live_audited,
)
from tests.crash.capture import Capture
from tests.crash.captured_server import MysqlServer
from tests.crash.mysql_audit import CHANGES, MysqlAuditWriter
from tests.crash.mysql_audit import TABLES as AUDITED_TABLES
from tests.crash.mysql_load import TABLES, MysqlShopWriter
from tests.crash.source_load import source_load

LIVES = 20
SURVIVING = {"innodb-flush-log-at-trx-commit": "2"}
"""Each commit reaches the operating system, so that a killed server has all that it has logged."""
DDL = (
    "ALTER TABLE orders ADD COLUMN more int DEFAULT 5",
    "ALTER TABLE orders MODIFY note varchar(300)",
    "ALTER TABLE orders DROP COLUMN more",
)


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedMysql]:
    with embedded_mysql(request.param, settings=SURVIVING) as server:
        yield server


@pytest.mark.long("crash")
@pytest.mark.parametrize("life", range(LIVES))
def test_a_mysql_capture_killed_at_random_ends_equal(
    life: int, server: EmbeddedMysql, tmp_path: Path
) -> None:
    random = Random(life)
    captured = MysqlServer(server)
    capture = Capture(captured, f"life_{life}", tmp_path, tables=TABLES)
    load = source_load(captured, capture.name, MysqlShopWriter(seed=life))
    capture.broker.start()
    capture.runner.start()
    load.start()
    try:
        for number in range(4):
            load.wait_for(random.randrange(100, 1_200))
            if number % 2:
                captured.execute(capture.name, DDL[number // 2])
                server.kill()
                server.start()
            capture.runner.kill()
            capture.runner.start()
        load.wait_for(random.randrange(600))
        load.stop()
        capture.finish()

        assert rows_of_target(tmp_path) == rows_of_source(capture)
    finally:
        load.stop()
        capture.close()


def rows_of_source(capture: Capture) -> list[tuple[object, ...]]:
    return sorted(capture.server.execute(capture.name, "SELECT id, note, n FROM orders"))


def rows_of_target(directory: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / "shop.db")) as target:
        return sorted(target.execute("SELECT id, note, n FROM orders").fetchall())


@pytest.mark.crash
def test_a_mysql_capture_killed_at_random_ends_as_an_audit_says(
    server: EmbeddedMysql, tmp_path: Path
) -> None:
    """Last values and times of deletes among it, also of XA transactions."""
    sinks = sinks_of(FEW, seed=AUDIT_SEED)
    live_audited(audited(server), tmp_path, sinks, seed=AUDIT_SEED, disasters=1)


@pytest.mark.long("crash")
def test_every_mode_and_target_of_mysql_ends_as_an_audit_says_for_as_long_as_there_is_time(
    server: EmbeddedMysql, mariadb: str, tmp_path: Path
) -> None:
    """`verify` says the same, and so it is after a rebuild."""
    with embedded_postgres() as postgres:
        databases = {"postgres": postgres.address, "mariadb": mariadb}
        live_as_long_as_there_is_time(audited(server), databases, tmp_path)


def audited(server: EmbeddedMysql) -> Audited:
    writer = partial(MysqlAuditWriter, is_mariadb=server.is_mariadb)
    return Audited(MysqlServer(server), AUDITED_TABLES, CHANGES, writer)
