"""Tables and rows of MySQL and MariaDB that are left out, and why."""

from pathlib import Path

import pytest

from headwater.connectors.mysql.source import MysqlSource
from headwater.connectors.source import Remark, SourceReport
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.file.loader import load
from headwater.pipelines.loops.assembly import run_task
from headwater.pipelines.reports import RemarksMade, Report
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import run_once, source_context
from tests.connectors.mysql.test_mysql_stream import T, begun, check_equal
from tests.pipelines.task_runs import task_run

HIDING = """
pipeline: {{name: shop, salt: a secret of sixteen or more}}
source: {{type: {kind}, url: "{url}", tables: ["{database}.*"]}}
log: {{compression: none}}
transform: [{{table: [{tables}], mask: {{email: hash}}}}]
sink: {{type: sql, url: "sqlite:///target.db"}}
"""
USERS = "CREATE TABLE users (id int PRIMARY KEY, email text)"


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


async def test_a_name_that_no_table_has_is_told_until_there_is_one(mysql_guest: MysqlGuest) -> None:
    told, said = await begun(mysql_guest, T), list[SourceReport]()
    name = f"{mysql_guest.database}.late"
    chosen = {"tables": [f"{mysql_guest.database}.t", name]}
    await run_once(mysql_guest, told, {"report": said.append}, **chosen)
    missing = left_out(said)
    mysql_guest.execute("CREATE TABLE late (id int PRIMARY KEY)", "INSERT INTO late VALUES (1)")
    await run_once(mysql_guest, told, {"report": said.append}, **chosen)

    assert missing == {name} and not left_out(said)
    check_equal(told, mysql_guest, "late")


def left_out(said: list[SourceReport]) -> set[str]:
    """What the newest remark of each name says."""
    newest = {each.name: each.finding for each in said if isinstance(each, Remark)}
    return {name for each in newest.values() if each is not None for name in each.left_out}


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("runs_meanwhile", [False, True])
async def test_a_renamed_table_is_left_out_until_a_rule_hides_its_columns(
    mysql_guest: MysqlGuest, tmp_path: Path, *, is_replaced: bool, runs_meanwhile: bool
) -> None:
    mysql_guest.execute(
        USERS,
        "INSERT INTO users VALUES (1, 'secret one')",
        "CREATE TABLE orders (id int PRIMARY KEY)",
        *([USERS.replace("users", "fresh")] if is_replaced else ()),
    )
    await held_tables(mysql_guest, tmp_path, "users", "fresh")
    rename = "RENAME TABLE users TO members" + (", fresh TO users" if is_replaced else "")
    mysql_guest.execute("INSERT INTO users VALUES (2, 'secret two')", rename)
    if runs_meanwhile:
        await held_tables(mysql_guest, tmp_path, "users", "fresh")
    mysql_guest.execute("INSERT INTO members VALUES (3, 'secret three')")

    held = [await held_tables(mysql_guest, tmp_path, "users", "fresh") for _ in range(2)]
    is_secret = holds(tmp_path, b"secret")
    after = await held_tables(mysql_guest, tmp_path, "users", "fresh", "members")

    assert held == [{f"{mysql_guest.database}.members"}] * 2 and not after
    assert not is_secret and not holds(tmp_path, b"secret") and holds(tmp_path, b'"members"')


@pytest.mark.parametrize("runs_meanwhile", [False, True])
async def test_a_table_and_its_hidden_column_renamed_at_once_are_left_out(
    mysql_guest: MysqlGuest, tmp_path: Path, *, runs_meanwhile: bool
) -> None:
    mysql_guest.execute(USERS, "INSERT INTO users VALUES (1, 'secret one')")
    await held_tables(mysql_guest, tmp_path, "users")
    mysql_guest.execute(
        "INSERT INTO users VALUES (2, 'secret two')",
        "ALTER TABLE users RENAME TO members, CHANGE email mail text",
    )
    if runs_meanwhile:
        await held_tables(mysql_guest, tmp_path, "users")
    mysql_guest.execute(
        "INSERT INTO members VALUES (3, 'secret three')",
        "CREATE TABLE others (id int PRIMARY KEY, total int, day date)",
    )

    held = [await held_tables(mysql_guest, tmp_path, "users") for _ in range(2)]

    assert held == [{f"{mysql_guest.database}.members"}] * 2
    assert not holds(tmp_path, b"secret")


async def held_tables(guest: MysqlGuest, directory: Path, *tables: str) -> set[str]:
    """The tables that a run with a rule for some of them leaves out."""
    told = list[Report]()
    names = ", ".join(f"{guest.database}.{each}" for each in tables)
    kind = "mariadb" if guest.server.is_mariadb else "mysql"
    file = directory / "pipeline.yaml"
    file.write_text(HIDING.format(kind=kind, url=guest.url, database=guest.database, tables=names))
    [loaded] = load(file, environment={})
    log = await EmbeddedLog.open(BrokerSettings(data=directory / "data", listen="127.0.0.1:0"))
    try:
        await run_task(task_run(loaded, "source", log, report=told.append))
    finally:
        await log.close()
    return {name for each in told if isinstance(each, RemarksMade) for name in each.left_out}


def holds(directory: Path, text: bytes) -> bool:
    return any(text in each.read_bytes() for each in directory.glob("data/**/*.log"))
