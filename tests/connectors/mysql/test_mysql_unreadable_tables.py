"""A table that the server does not read is left out alone, and read once it can be."""

from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from headwater.connectors.mysql.snapshot import chunk_reader
from headwater.connectors.mysql.snapshot.chunk_reader import MysqlChunk
from headwater.connectors.mysql.source import MysqlSource
from headwater.connectors.snapshot import unreadable_tables
from headwater.connectors.snapshot.unreadable_tables import UNREADABLE
from headwater.connectors.source import Control, Remark, SourceReport
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected
from headwater.core_log.model.table_schema import TableId
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, source_context

RIGHTS = "REPLICATION SLAVE, REPLICATION CLIENT", "REPLICATION SLAVE, BINLOG MONITOR"


@pytest.fixture
def narrow_guest(mysql_guest: MysqlGuest) -> Iterator[MysqlGuest]:
    """A user whose rights are per table, so that one can be taken away."""
    name, server = mysql_guest.database, mysql_guest.server
    mysql_guest.execute(
        "CREATE TABLE good (id int PRIMARY KEY)",
        "CREATE TABLE bad (id int PRIMARY KEY)",
        "INSERT INTO good VALUES (1)",
        "INSERT INTO bad VALUES (1)",
        f"CREATE USER {name}@'%' IDENTIFIED BY 'secret'",
        f"GRANT {RIGHTS[server.is_mariadb]} ON *.* TO {name}@'%'",
        f"GRANT SELECT ON {name}.good TO {name}@'%'",
        f"GRANT SELECT ON {name}.bad TO {name}@'%'",
    )
    yield replace(mysql_guest, user=f"{name}:secret")
    server.execute(f"DROP USER {name}@'%'")


async def test_a_table_that_may_no_longer_be_read_is_named_and_the_others_go_on(
    narrow_guest: MysqlGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable_tables, "RETRY_S", 0.05)
    name, named, told = narrow_guest.database, list[tuple[str, ...]](), MysqlStory()

    def report(each: SourceReport) -> None:
        if isinstance(each, Remark) and each.name == UNREADABLE:
            named.append(each.finding.left_out if each.finding else ())

    settings = narrow_guest.settings(heartbeat="1s")
    source = MysqlSource(settings, source_context(report=report, settle_ms=0))
    async with aclosing(source.changes({})) as coming:
        while told.letters("good") + told.letters("bad") != "rr":
            told.take(await anext(coming))
        narrow_guest.execute(f"REVOKE SELECT ON {name}.bad FROM {name}@'%'")
        await source.control(Control("1", "snapshot", TableId(name, "bad"), {"action": "start"}))
        while not named:
            told.take(await anext(coming))
        narrow_guest.execute("INSERT INTO good VALUES (2)", "INSERT INTO bad VALUES (2)")
        while told.letters("good") != "rc":
            told.take(await anext(coming))
        narrow_guest.execute(f"GRANT SELECT ON {name}.bad TO {name}@'%'")
        while named[-1]:
            told.take(await anext(coming))

    assert named[0] == (f"{name}.bad",)
    assert sorted(row["id"] for row in told.fold("bad").values()) == [1, 2]


def alter_before_it_is_read(
    guest: MysqlGuest, monkeypatch: pytest.MonkeyPatch, *, is_unreadable: bool
) -> None:
    """Alters the table just before its first rows are read under the form that it had."""
    is_altered, read_chunk = False, chunk_reader.read_chunk

    def read_later(*given: Any, **options: Any) -> MysqlChunk:
        nonlocal is_altered
        if not is_altered:
            is_altered = True
            guest.execute(
                "ALTER TABLE t MODIFY n bigint unsigned", f"INSERT INTO t VALUES (2, {2**64 - 1})"
            )
            if is_unreadable:
                raise SourceRejected("the server cannot read it")
        return read_chunk(*given, **options)

    monkeypatch.setattr("headwater.connectors.mysql.snapshot.table_readers.read_chunk", read_later)


@pytest.mark.parametrize("is_unreadable", [False, True])
async def test_a_table_that_gets_another_form_while_it_is_read_is_not_left_out(
    mysql_guest: MysqlGuest, monkeypatch: pytest.MonkeyPatch, is_unreadable: bool
) -> None:
    """What its rows were under the former form says nothing about the table."""
    mysql_guest.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n bigint)", "INSERT INTO t VALUES (1, 1)"
    )
    alter_before_it_is_read(mysql_guest, monkeypatch, is_unreadable=is_unreadable)
    findings = list[Diagnostic | None]()

    def report(each: SourceReport) -> None:
        if isinstance(each, Remark) and each.name == UNREADABLE:
            findings.append(each.finding)

    # A finite run may end with a table that was unreadable when the log ended.
    context = source_context(report=report, settle_ms=0, until_end=not is_unreadable)
    source, told = MysqlSource(mysql_guest.settings(heartbeat="1s"), context), MysqlStory()
    async with aclosing(source.changes({})) as coming:
        while len(told.fold("t")) < 2 or (is_unreadable and findings[-1] is not None):
            told.take(await anext(coming))

    assert sorted(row["n"] for row in told.fold("t").values()) == [1, 2**64 - 1]
    assert [each is None for each in findings] == [False, True] * is_unreadable
