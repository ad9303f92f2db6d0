"""The MySQL source keeps the contract of sources, on MySQL and on MariaDB."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.connectors.mysql.source import MysqlSource
from headwater.connectors.source import Source
from headwater.core_log.model.changes import Positions
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import run_once, source_context
from tests.contract.source_suite import SourceSuite

CODE = (str(Path(__file__).resolve().parents[3]), sys.prefix, sys.base_prefix)
TABLES = (
    "CREATE TABLE customers (id int PRIMARY KEY, name varchar(50) NOT NULL, note text)",
    "CREATE TABLE `lines` (order_id bigint, line int, amount decimal(10,2),"
    " PRIMARY KEY (order_id, line))",
)


def numbers(count: int) -> str:
    steps = f"SELECT 1 i UNION ALL SELECT i + 1 FROM s WHERE i < {count}"
    return f"(WITH RECURSIVE s AS ({steps}) SELECT i FROM s) n"


HISTORY = (
    f"INSERT INTO customers (id, name) SELECT i, concat('customer ', i) FROM {numbers(40)}",
    f"INSERT INTO `lines` SELECT i DIV 3, i % 3, i * 1.5 FROM {numbers(60)}",
    "UPDATE customers SET note = repeat('long ', 2000) WHERE id = 7",
    "BEGIN",
    "UPDATE customers SET name = 'other' WHERE id < 5",
    "DELETE FROM `lines` WHERE order_id = 2",
    "INSERT INTO customers VALUES (100, 'late', NULL)",
    "COMMIT",
    "UPDATE customers SET name = 'renamed' WHERE id = 7",
    "UPDATE `lines` SET line = line + 10 WHERE order_id = 4",
    "DELETE FROM customers WHERE id = 9",
)
CHANGES = 40 + 60 + 1 + (4 + 3 + 1) + 1 + 2 * 3 + 1
ROWS = (40 + 1 - 1) + (60 - 3)


class MysqlGround:
    """A database whose rows are there."""

    is_exact = False
    change_count = ROWS

    def __init__(self, guest: MysqlGuest) -> None:
        self._guest = guest
        guest.execute(*TABLES, *HISTORY)

    def open(self) -> Source:
        return MysqlSource(self._guest.settings(), source_context(until_end=True))

    def outside(self) -> object:
        return self._guest.execute("SELECT user, db FROM information_schema.processlist WHERE 0")

    def held(self) -> object:
        found = 0
        for each in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                found += not str(each.readlink()).startswith(CODE)
        return found


class TestRowsOfMysqlThatAreThere(SourceSuite):
    @pytest.fixture
    def ground(self, mysql_guest: MysqlGuest) -> MysqlGround:
        return MysqlGround(mysql_guest)


class MysqlStreamGround(MysqlGround):
    """A database whose history is in the binary log behind a position."""

    is_exact = True
    change_count = CHANGES

    def __init__(self, guest: MysqlGuest, begin: Positions) -> None:
        self._guest, self._begin = guest, begin

    def open(self) -> Source:
        return _From(self._guest, self._begin)


class _From(MysqlSource):
    """Begins at a position where the suite begins at nothing."""

    def __init__(self, guest: MysqlGuest, begin: Positions) -> None:
        super().__init__(guest.settings(), source_context(until_end=True))
        self._begin = begin

    def changes(self, resume_from: Positions):  # type: ignore[no-untyped-def]
        return super().changes(resume_from or self._begin)


class TestStreamOfMysql(SourceSuite):
    @pytest.fixture
    async def ground(self, mysql_guest: MysqlGuest) -> MysqlStreamGround:
        mysql_guest.execute(*TABLES)
        told = await run_once(mysql_guest)
        mysql_guest.execute(*HISTORY)
        return MysqlStreamGround(mysql_guest, told.positions)
