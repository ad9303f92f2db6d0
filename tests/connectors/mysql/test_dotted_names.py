"""Databases and tables whose names contain dots."""

from collections.abc import Iterator
from contextlib import aclosing

import pytest

from headwater.connectors.mysql.source import MysqlSource
from headwater.connectors.source import Control
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.journal.control import DesiredTaskState, Signal
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, source_context
from tests.connectors.mysql.test_mysql_stream import T, check_equal, phases

DOTTED = T.replace("TABLE t", "TABLE `a.b`")


@pytest.fixture
def dotted(mysql_guest: MysqlGuest) -> Iterator[MysqlGuest]:
    name = f"{mysql_guest.database}.v2"
    mysql_guest.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    yield MysqlGuest(mysql_guest.server, name)
    mysql_guest.execute(f"DROP DATABASE `{name}`")


async def test_tables_are_not_read_again_at_the_next_start(dotted: MysqlGuest) -> None:
    dotted.execute(T, DOTTED)
    for table in ("t", "a.b"):
        dotted.execute(f"INSERT INTO `{table}` VALUES (1, 'a', 1), (2, 'b', 2)")
    told = await run_once(dotted)
    for table in ("t", "a.b"):
        dotted.execute(f"DELETE FROM `{table}` WHERE id = 1")

    await run_once(dotted, told)

    for table in ("t", "a.b"):
        assert told.letters(table) == "rrd" and not phases(told, table)


async def test_tables_that_are_made_again_while_the_source_is_stopped_replace_their_rows(
    dotted: MysqlGuest,
) -> None:
    for table in ("t", "a.b"):
        create = f"CREATE TABLE `{table}` (id int PRIMARY KEY, v varchar(50), n int)"
        dotted.execute(create, f"INSERT INTO `{table}` VALUES (1, 'a', 1)")
    told = await run_once(dotted)
    for table in ("t", "a.b"):
        dotted.execute(f"DROP TABLE `{table}`")
    await run_once(dotted, told)
    for table in ("t", "a.b"):
        create = f"CREATE TABLE `{table}` (id int PRIMARY KEY, v varchar(50), m int)"
        dotted.execute(create, f"INSERT INTO `{table}` VALUES (2, 'b', 2)")

    await run_once(dotted, told)

    for table in ("t", "a.b"):
        check_equal(told, dotted, table)


@pytest.mark.parametrize("table", ["t", "a.b"])
async def test_a_signal_finds_its_table(dotted: MysqlGuest, table: str) -> None:
    dotted.execute(T, DOTTED, f"INSERT INTO `{table}` VALUES (1, 'a', 1)")
    told = await run_once(dotted)
    signal = Signal("snapshot", str(TableId(dotted.database, table)), "s", {"action": "start"})
    [control] = DesiredTaskState.of("shop", [signal]).controls()
    assert isinstance(control, Control)
    source = MysqlSource(dotted.settings(), source_context())
    again: MysqlStory = MysqlStory(positions=told.positions)

    async with aclosing(source.changes(dict(told.positions))) as coming:
        again.take(await anext(coming))
        await source.control(control)
        while again.letters(table) != "r":
            again.take(await anext(coming))

    assert again.fold(table) == told.fold(table)
