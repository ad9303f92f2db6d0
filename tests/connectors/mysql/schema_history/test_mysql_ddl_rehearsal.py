"""`plan --ddl` says of a statement what then happens, and leaves the server as it is."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headwater.connectors.mysql.ddl_rehearsal import rehearse
from headwater.connectors.source import DdlOutcome, Remark, SourceReport
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError, SourceRejected
from headwater.core_log.model.changes import Phase
from headwater.core_log.model.table_schema import TableSchema
from tests.connectors.mysql.conftest import GUEST, MysqlGuest
from tests.connectors.mysql.schema_history.alter_table_lines import LINES, Line
from tests.connectors.mysql.streams import MysqlStory, run_once, source_context

PAGE = Path(__file__).resolve().parents[4] / "docs" / "mysql.md"
T = "CREATE TABLE t (id int PRIMARY KEY, v varchar(50), n int)"


@pytest.fixture
def planner(mysql_guest: MysqlGuest) -> MysqlGuest:
    """The guest with the right of docs/mysql-role.md to try a statement."""
    mysql_guest.execute(f"GRANT CREATE TEMPORARY TABLES ON {mysql_guest.database}.* TO {GUEST}@'%'")
    return mysql_guest


def foretold(guest: MysqlGuest, *statements: str, **given: Any) -> list[DdlOutcome]:
    settings = {key: given.pop(key) for key in ("snapshot", "tables", "keys") if key in given}
    context = replace(source_context(), **given)
    return rehearse(guest.settings(**settings), context, statements)


def end_of_log(guest: MysqlGuest) -> Any:
    return guest.execute("SHOW BINARY LOGS")[-1][:2]


def lines_of(guest: MysqlGuest) -> list[Line]:
    here = {"", "mariadb" if guest.server.is_mariadb else "mysql"}
    return [each for each in LINES if each.only in here]


@dataclass(frozen=True, slots=True)
class Case:
    line: Line
    table: str
    statement: str


def made_cases(guest: MysqlGuest, count: int | None) -> list[Case]:
    """A table with rows for each statement of the page, or for the first ones of each line."""
    cases: list[Case] = []
    for line in lines_of(guest):
        for action in line.statements[:count]:
            table = f"t{len(cases)}"
            guest.execute(
                *(each.format(t=table) for each in line.made),
                f"INSERT INTO {table} (id, v, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
            )
            statement = f"ALTER TABLE {table} {action.format(t=table)}"
            cases.append(Case(line, table, statement))
    return cases


def key_of(schema: TableSchema) -> list[Any]:
    return [(name, schema.column(name).type) for name in schema.key]


def happened(case: Case, told: MysqlStory, before: int, left_out: set[str]) -> tuple[str, Any]:
    """What the source did with the table behind the statement, and the schema it then had."""
    first = next(
        each.schema
        for batch in told.batches[:before]
        for each in batch.tables
        if each.schema.table.name == case.table
    )
    after = told.batches[before:]
    complete = [
        each.schema
        for batch in after
        for each in batch.replacements
        if each.schema.table.name == case.table and each.phase is Phase.COMPLETE
    ]
    others = {each.schema.table.name for batch in after for each in batch.tables}
    if complete:
        is_same = key_of(complete[-1]) == key_of(first)
        return "read again" if is_same else "new key", complete[-1]
    if any(name.startswith(f"{case.table}_") for name in others):
        return "new topic", None
    is_gone = case.table in left_out or "RENAME TO" in case.statement
    return "left out" if is_gone else "followed", None


@pytest.mark.parametrize(
    "count", [1, pytest.param(None, marks=pytest.mark.long("compat"))], ids=["first", "all"]
)
async def test_each_alter_table_of_the_mysql_page_is_foretold_and_then_happens(
    planner: MysqlGuest, count: int | None
) -> None:
    cases, remarks = made_cases(planner, count), list[Remark]()

    def report(each: SourceReport) -> None:
        if isinstance(each, Remark):
            remarks.append(each)

    told = await run_once(planner)
    before, log = len(told.batches), end_of_log(planner)
    said: dict[str, tuple[str, Any]] = {}
    for case in cases:
        [own] = [
            each for each in foretold(planner, case.statement) if each.table.name == case.table
        ]
        said[case.statement] = own.outcome, own.schema
    assert end_of_log(planner) == log
    for case in cases:
        planner.execute(case.statement)
        assert planner.execute("SHOW TABLES LIKE '%headwater%'") == []
    await run_once(planner, told, {"report": report})

    [*_, last] = [each for each in remarks if each.finding is not None and each.finding.left_out]
    assert last.finding is not None
    left_out = {name.rpartition(".")[2] for name in last.finding.left_out}
    assert {case.statement: said[case.statement][0] for case in cases} == {
        case.statement: case.line.outcome for case in cases
    }
    seen = {case.statement: happened(case, told, before, left_out) for case in cases}
    assert seen == said


def test_the_mysql_page_has_each_line_and_no_other() -> None:
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in PAGE.read_text()
        .split("## What a statement would do")[1]
        .split("\n## ")[0]
        .splitlines()
        if row.startswith("| ")
    ]
    written = {form: outcome.split("**")[1] for form, outcome in rows[1:] if "**" in outcome}

    assert written == {line.form: line.outcome for line in LINES}


def test_tables_that_a_statement_names_besides_are_foretold_too(planner: MysqlGuest) -> None:
    planner.execute(T, "CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE w (id int PRIMARY KEY)")

    said = foretold(planner, "ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES u (id)")

    assert {each.table.name: each.outcome for each in said} == {
        "t": "read again",
        "u": "read again",
    }


def test_statements_of_one_table_are_foretold_together(planner: MysqlGuest) -> None:
    planner.execute(T, "CREATE TABLE u (id int PRIMARY KEY)")

    said = foretold(
        planner,
        "ALTER TABLE t ADD c int;",
        "ALTER TABLE u ADD b int",
        f"alter table `{planner.database}`.`t` RENAME COLUMN c TO d",
        "ALTER TABLE t RENAME TO s",
        schema_changes={"drop_column": "fail"},
    )

    assert [(each.table.name, each.outcome) for each in said] == [
        ("t", "new topic"),
        ("t", "read again"),
        ("u", "read again"),
    ]
    schemas = [each.schema for each in said]
    assert schemas[0] is None and schemas[1] is not None and schemas[2] is not None
    assert (schemas[1].names, schemas[2].names) == (("id", "v", "n", "d"), ("id", "b"))
    assert "does not allow drop_column" in said[1].quarantine and not said[2].quarantine


async def test_a_reread_is_foretold_with_its_cost_and_what_holds_it(planner: MysqlGuest) -> None:
    rows = ", ".join(f"({number}, 'a', 1)" for number in range(300))
    planner.execute(T, f"INSERT INTO t VALUES {rows}", "ANALYZE TABLE t")
    told = await run_once(planner)
    drop, rules = "ALTER TABLE t DROP n", {"schema_changes": {"drop_column": "fail"}}
    small = {"snapshot": {"reread_max_rows": 10}}

    [forbidden], [large] = foretold(planner, drop, **rules), foretold(planner, drop, **small)
    planner.execute(drop)
    await run_once(planner, told, rules)

    [held] = [each for batch in told.batches for each in batch.replacements]
    assert held.phase is Phase.QUARANTINED and held.why.endswith(f"; {forbidden.quarantine}")
    assert forbidden.cost.startswith("about 300 rows, ")
    assert "`snapshot.reread_max_rows` is 10" in large.quarantine
    assert "headwater snapshot start shop/" in large.quarantine


async def test_a_source_that_may_read_no_rows_is_foretold_to_stop(planner: MysqlGuest) -> None:
    never: dict[str, Any] = {"snapshot": {"mode": "never"}}
    planner.execute(T)
    told = await run_once(planner, **never)

    [said] = foretold(planner, "ALTER TABLE t ADD c int", **never)
    planner.execute("ALTER TABLE t ADD c int")

    assert said.outcome == "differs" and said.why.endswith("so the source stops")
    with pytest.raises(SourceRejected, match="never"):
        await run_once(planner, told, **never)


async def test_the_key_that_the_file_chooses_is_foretold_as_it_then_is(planner: MysqlGuest) -> None:
    keys: dict[str, Any] = {"keys": {f"{planner.database}.*": ["n"]}}
    planner.execute("CREATE TABLE t (n int NOT NULL, v int, UNIQUE KEY u (n))")
    planner.execute("INSERT INTO t VALUES (1, 1)")
    told = await run_once(planner, **keys)

    [gone] = foretold(planner, "ALTER TABLE t DROP KEY u", **keys)
    [null] = foretold(planner, "ALTER TABLE t MODIFY n int NULL", **keys)
    [kept] = foretold(planner, "ALTER TABLE t DROP v", **keys)
    planner.execute("ALTER TABLE t DROP KEY u")
    await run_once(planner, told, **keys)
    planner.execute("INSERT INTO t VALUES (2, 2)")
    await run_once(planner, told, **keys)

    assert (gone.outcome, null.outcome, kept.outcome) == ("left out", "left out", "read again")
    assert told.letters("t") == "r"
    [cured] = foretold(planner, "ALTER TABLE t ADD UNIQUE KEY u (n)", **keys)
    assert (cured.outcome, cured.why) == ("read again", "it can be captured from then on")


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE t",
        "TRUNCATE t",
        "CREATE INDEX i ON t (n)",
        "ALTER VIEW t AS SELECT 1",
        "ALTER TABLE t",
        "ALTER TABLE t ADD c int; DROP TABLE t",
        "ALTER TABLE t ADD c int -- and more",
        "ALTER TABLE t ADD c int # and more",
        "ALTER TABLE t /*! ADD c int */",
        "ALTER TABLE t ADD c int REFERENCES t (id)",
        "ALTER TABLE t ADD c int, RENAME TO u",
        "DELETE FROM t",
        "",
    ],
)
def test_a_statement_other_than_one_alter_table_is_not_run_at_mysql(
    planner: MysqlGuest, statement: str
) -> None:
    planner.execute(T, "INSERT INTO t VALUES (1, 'a', 1)")
    log = end_of_log(planner)

    with pytest.raises(ConfigError):
        foretold(planner, statement)

    assert planner.execute("SELECT * FROM t") == [(1, "a", 1)]
    assert end_of_log(planner) == log


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE t DROP nothing", "cannot be tried on a copy"),
        ("ALTER TABLE t ADD c int NONSENSE", "cannot be parsed"),
        ("ALTER TABLE t DROP PARTITIONS low", "cannot be parsed"),
        ("ALTER TABLE t ADD c int DEFAULT 'x'", "cannot be tried on a copy"),
        ("ALTER TABLE t RENAME TO u", "a table of the new name is there already"),
        ("ALTER TABLE nowhere ADD c int", "does not capture this table"),
        ("ALTER TABLE {database}.nowhere ADD c int", "the table is not there"),
        ("ALTER TABLE {database}._t_gho ADD c int", "does not capture this table"),
        ("ALTER TABLE {database}.seen ADD c int", "the table is not there"),
    ],
)
def test_a_statement_that_cannot_be_foretold_is_an_error_with_the_reason(
    planner: MysqlGuest, statement: str, said: str
) -> None:
    planner.execute(
        T,
        "CREATE TABLE u (id int PRIMARY KEY)",
        "CREATE TABLE _t_gho LIKE t",
        "CREATE VIEW seen AS SELECT * FROM t",
    )

    with pytest.raises(HeadwaterError, match=said):
        foretold(planner, statement.format(database=planner.database))


def test_a_name_in_two_databases_needs_its_database(planner: MysqlGuest) -> None:
    other = f"{planner.database}_b"
    planner.execute(T, f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t (id int PRIMARY KEY)")
    tables = {"tables": [f"{planner.database}.*", f"{other}.*"]}

    try:
        with pytest.raises(ConfigError, match="in several databases"):
            foretold(planner, "ALTER TABLE t ADD c int", **tables)
        [said] = foretold(planner, f"ALTER TABLE {planner.database}.t ADD c int", **tables)
    finally:
        planner.execute(f"DROP DATABASE {other}")

    assert said.table.namespace == planner.database


def test_a_table_that_no_copy_has_is_an_error_with_the_reason(planner: MysqlGuest) -> None:
    if not planner.server.is_mariadb:
        pytest.skip("MySQL has no such tables")
    planner.execute(
        "CREATE TABLE past (id int PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE TABLE spans (id int PRIMARY KEY, a date, b date, PERIOD FOR span (a, b))",
    )

    with pytest.raises(SourceRejected, match="system-versioned"):
        foretold(planner, "ALTER TABLE past ADD c int")
    with pytest.raises(SourceRejected, match="copy of the table cannot be made"):
        foretold(planner, "ALTER TABLE spans ADD c int")


def test_the_grant_is_named_where_the_right_to_a_copy_lacks(mysql_guest: MysqlGuest) -> None:
    mysql_guest.execute(T)
    grant = f"GRANT CREATE TEMPORARY TABLES ON `{mysql_guest.database}`.* TO the user"

    with pytest.raises(SourceRejected) as caught:
        foretold(mysql_guest, "ALTER TABLE t ADD c int")
    [known] = foretold(mysql_guest, "ALTER TABLE t RENAME TO u")

    assert caught.value.hint == grant
    assert known.outcome == "new topic"
