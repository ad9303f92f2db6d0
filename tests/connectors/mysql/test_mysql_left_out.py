"""Tables and rows of MySQL and MariaDB that are left out, and why."""

import pytest

from headwater.connectors.mysql.source import MysqlSource
from headwater.core_log.foundation.errors import SourceRejected
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import run_once, source_context
from tests.connectors.mysql.test_mysql_stream import T, begun, check_equal


async def test_a_table_whose_chosen_key_is_not_unique_is_left_out_and_named(
    mysql_guest: MysqlGuest,
) -> None:
    mysql_guest.execute(T, "CREATE TABLE k (a int)", "CREATE TABLE w (a int NOT NULL UNIQUE)")
    keys = {f"{mysql_guest.database}.{name}": ["a"] for name in ("k", "w")}
    source = MysqlSource(mysql_guest.settings(keys=keys), source_context())

    tables = {schema.table.name: schema.key for schema in await source.discover()}
    findings = [each for each in await source.examine() if each.left_out]

    assert tables == {"t": ("id",), "w": ("a",)}
    assert [each.left_out for each in findings] == [(f"{mysql_guest.database}.k",)]


async def test_copies_of_schema_tools_are_captured_only_by_their_exact_names(
    mysql_guest: MysqlGuest,
) -> None:
    copies = ("_t_gho", "_t_ghc", "_t_del", "_t_new", "_t_old")
    mysql_guest.execute(
        T, "CREATE VIEW seen AS SELECT * FROM t",
        *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in copies),
    )  # fmt: skip
    exactly = [f"{mysql_guest.database}.{name}" for name in ("t", "_t_new")]

    found = [
        [schema.table.name for schema in await MysqlSource(each, source_context()).discover()]
        for each in (mysql_guest.settings(), mysql_guest.settings(tables=exactly))
    ]

    assert [sorted(names) for names in found] == [["t"], ["_t_new", "t"]]


async def test_a_date_that_no_calendar_has_stops_the_source_in_a_key_and_is_null_elsewhere(
    mysql_guest: MysqlGuest,
) -> None:
    mysql_guest.execute("CREATE TABLE k (d date PRIMARY KEY, e date)")
    told = await run_once(mysql_guest)
    mysql_guest.execute("SET SESSION sql_mode = ''", "INSERT INTO k VALUES ('2026-01-02', 0)")
    await run_once(mysql_guest, told)
    assert told.letters("k") == "c" and told.events("k")[0][1]["e"] is None
    mysql_guest.execute("SET SESSION sql_mode = ''", "INSERT INTO k VALUES ('0000-00-00', NULL)")

    with pytest.raises(SourceRejected, match="no calendar"):
        await run_once(mysql_guest, told)


async def test_a_system_versioned_table_is_left_out_and_the_others_go_on(
    mysql_guest: MysqlGuest,
) -> None:
    if not mysql_guest.server.is_mariadb:
        pytest.skip("MySQL has no such tables")
    told = await begun(
        mysql_guest, T, "CREATE TABLE past (id int PRIMARY KEY, v int) WITH SYSTEM VERSIONING",
        "CREATE SEQUENCE numbers", "INSERT INTO t VALUES (1, 'a', 1)",
    )  # fmt: skip
    mysql_guest.execute(
        "INSERT INTO past VALUES (1, 1)", "UPDATE past SET v = 2", "DO NEXTVAL(numbers)",
        "INSERT INTO t VALUES (2, 'b', 2)",
    )  # fmt: skip
    await run_once(mysql_guest, told)

    assert told.letters("t") == "rc" and not told.letters("past") + told.letters("numbers")
    findings = await MysqlSource(mysql_guest.settings(), source_context()).examine()
    assert [each.left_out for each in findings if each.left_out] == [
        (f"{mysql_guest.database}.past",)
    ]
    mysql_guest.execute("ALTER TABLE past DROP SYSTEM VERSIONING")
    await run_once(mysql_guest, told)
    check_equal(told, mysql_guest, "past")
