"""`headwater plan --ddl` shows of MySQL and MariaDB what it shows of PostgreSQL."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.connectors.mysql.conftest import GUEST, MysqlGuest
from tests.pipelines.conftest import run_command

FILE = """
pipeline: {{name: shop, schema_changes: {{drop_column: fail}}}}
source: {{type: mysql, url: "{url}", tables: ["{database}.*"]}}
transform: [{{table: "{database}.items", mask: {{secret: hash}}}}]
sink: {{type: sql, url: "sqlite:///target.db"}}
"""


def file_of(guest: MysqlGuest, directory: Path) -> Path:
    guest.execute(
        f"GRANT CREATE TEMPORARY TABLES ON {guest.database}.* TO {GUEST}@'%'",
        "CREATE TABLE items (id int PRIMARY KEY, b int, secret varchar(9))",
        "INSERT INTO items VALUES (1, 1, 'x')",
    )
    file = directory / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url, database=guest.database))
    return file


def test_a_statement_of_mysql_is_shown_with_what_follows(
    mysql_guest: MysqlGuest, tmp_path: Path
) -> None:
    file = file_of(mysql_guest, tmp_path)
    with closing(sqlite3.connect(tmp_path / "target.db")) as target:
        target.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, b INTEGER)")
    ddl = ["--ddl", "ALTER TABLE items ADD c int DEFAULT 7", "--ddl", "ALTER TABLE items DROP b"]

    shown = run_command("plan", file, *ddl)
    [plan] = run_command("plan", file, *ddl, "--json").envelope["data"][0]["ddl"]

    assert f"{mysql_guest.database}.items   read again: the server does not say" in shown.data
    assert "free for the log and sql" in shown.data
    assert "quarantined: `schema_changes` does not allow drop_column" in shown.data
    assert plan["outcome"] == "read again"
    assert plan["targets"][0]["sink"] == "sql" and plan["targets"][0]["refusal"]


def test_targets_of_a_mysql_table_that_gets_another_key_are_rebuilt(
    mysql_guest: MysqlGuest, tmp_path: Path
) -> None:
    file = file_of(mysql_guest, tmp_path)
    ran = run_command("run", file, "--once")

    shown = run_command("plan", file, "--ddl", "ALTER TABLE items MODIFY id bigint")

    assert ran.code == 0
    assert f"{mysql_guest.database}.items   new key: " in shown.data
    assert "sink sql: rebuilt from the log, a history quarantined: the table has another" in (
        shown.data
    )


@pytest.mark.long("compat")
def test_a_mysql_table_that_loses_a_masked_column_is_foretold_to_be_left_out(
    mysql_guest: MysqlGuest, tmp_path: Path
) -> None:
    file = file_of(mysql_guest, tmp_path)
    assert run_command("run", file, "--once").code == 0
    ddl = "ALTER TABLE items RENAME COLUMN secret TO shown"

    shown = run_command("plan", file, "--ddl", ddl)
    mysql_guest.execute(ddl, "INSERT INTO items VALUES (2, 2, 'y')")
    run_command("run", file, "--once")

    assert shown.code == 0
    assert f"{mysql_guest.database}.items   left out: " in shown.data and "secret" in shown.data
    with closing(sqlite3.connect(tmp_path / "target.db")) as target:
        assert [row[0] for row in target.execute("SELECT id FROM items")] == [1]
