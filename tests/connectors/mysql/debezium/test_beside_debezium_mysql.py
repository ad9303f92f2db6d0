"""Events are Debezium's, field by field, but for a short list of differences with reasons."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.embedded_mysql import EmbeddedMysql
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.debezium import mysql_history, mysql_side_by_side
from tests.connectors.mysql.debezium.mysql_differences import BY_CHANCE, permitted_of
from tests.connectors.mysql.debezium.mysql_side_by_side import MODES
from tests.debezium.differences import compare
from tests.debezium.events import keep_run, kept_run, read_run

RECORD = "HEADWATER_RECORD_DEBEZIUM"
"""With it the run becomes the recorded one."""
LIVE = ("mysql-9", "mariadb-11.8")
"""Servers for which the list of differences is exact."""
NOT_RECORDED = "mysql-8.0"
"""It lacks types that the recorded server has."""


@pytest.fixture
def guest(mysql_server: EmbeddedMysql) -> Iterator[MysqlGuest]:
    """In a database whose name stands in the recorded topics."""
    name = mysql_history.DATABASE
    mysql_server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield MysqlGuest(mysql_server, name)
    mysql_server.execute(f"DROP DATABASE {name}")


async def test_events_are_those_of_a_recorded_run_of_debezium(guest: MysqlGuest) -> None:
    if guest.server.kind == NOT_RECORDED:
        pytest.skip("it lacks types of the recorded server")
    mysql_side_by_side.prepare(guest)

    ours = await mysql_side_by_side.alone(guest)

    theirs = {mode: kept_run(f"{family_of(guest)}_{mode}") for mode in MODES}
    assert sum(len(told.events) for told in theirs["plain"].values()) > 1_000
    compare(ours, theirs, permitted_of(guest), is_same_run=False)


@pytest.mark.compat
@pytest.mark.long("compat")
async def test_events_are_those_of_debezium_beside_us(guest: MysqlGuest, tmp_path: Path) -> None:
    if guest.server.kind not in LIVE:
        pytest.skip("the differences were looked at beside other servers")
    mysql_side_by_side.prepare(guest)

    ours, files = await mysql_side_by_side.both(guest, tmp_path)

    if os.environ.get(RECORD):
        for mode, path in files.items():
            keep_run(path, f"{family_of(guest)}_{mode}")
    theirs = {mode: read_run(path) for mode, path in files.items()}
    permitted = permitted_of(guest)
    needed = compare(ours, theirs, permitted, is_same_run=True)
    unneeded = {one.reason for one in permitted} - needed
    if guest.server.is_mariadb:
        unneeded -= BY_CHANCE
    assert unneeded == set(), "reasons that nothing needs"


def family_of(guest: MysqlGuest) -> str:
    return "mariadb" if guest.server.is_mariadb else "mysql"
