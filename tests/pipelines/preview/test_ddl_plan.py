"""`headwater plan --ddl` says what a statement at the source would do to the log and to targets."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.databases import Guest
from tests.pipelines.conftest import Headwater

FILE = """
pipeline: {{name: shop, schema_changes: {{drop_column: fail}}}}
source: {{type: postgres, url: "{url}", tables: [public.items]}}
sink: {{type: sql, url: "sqlite:///target.db"}}
"""


def test_a_statement_is_shown_with_what_follows(
    guest: Guest, tmp_path: Path, headwater: Headwater
) -> None:
    guest.execute("CREATE TABLE items (id int PRIMARY KEY, b int)", "INSERT INTO items VALUES (1)")
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url))
    with closing(sqlite3.connect(tmp_path / "target.db")) as target:
        target.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, b INTEGER)")
    ddl = [
        "--ddl",
        "ALTER TABLE items ADD c int DEFAULT random()",
        "--ddl",
        "ALTER TABLE items DROP b",
    ]

    shown = headwater("plan", file, *ddl)
    [plan] = headwater("plan", file, *ddl, "--json").envelope["data"][0]["ddl"]

    assert "public.items   read again: the column c was added with values" in shown.data
    assert "free for the log and sql" in shown.data
    assert plan["outcome"] == "read again"
    assert plan["targets"][0]["sink"] == "sql"
    assert plan["targets"][0]["refusal"]


def test_targets_of_a_table_that_gets_another_key_are_rebuilt(
    guest: Guest, tmp_path: Path, headwater: Headwater
) -> None:
    guest.execute("CREATE TABLE items (id int PRIMARY KEY, b int NOT NULL)")
    guest.publish("items")
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url))
    ran = headwater("run", file, "--once")
    ddl = "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (id, b)"

    shown = headwater("plan", file, "--ddl", ddl)

    assert ran.code == 0
    assert "public.items   new key: the key of the table was changed" in shown.data
    assert "sink sql: rebuilt from the log, a history quarantined: the table has another" in (
        shown.data
    )
    assert "run --migrate" not in shown.data


def test_a_table_that_loses_a_masked_column_is_foretold_to_be_left_out(
    guest: Guest, tmp_path: Path, headwater: Headwater
) -> None:
    guest.execute("CREATE TABLE items (id int PRIMARY KEY, secret text)")
    file = tmp_path / "pipeline.yaml"
    mask = "transform: [{table: public.items, mask: {secret: hash}}]\n"
    file.write_text(FILE.format(url=guest.url) + mask)

    shown = headwater("plan", file, "--ddl", "ALTER TABLE items DROP secret")

    assert shown.code == 0
    assert "public.items   left out: " in shown.data and "secret" in shown.data
