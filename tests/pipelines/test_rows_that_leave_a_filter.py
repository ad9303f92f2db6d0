"""Rows leave the target of a filter also where their source reads them a second time."""

from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.time_travel.verify.test_verify import execute, rows
from tests.pipelines.time_travel.world import World, tell

TARGET = """
transform: [{table: orders, filter: "status = 'open'"}]
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s, tables: {"*": {mode: MODE}}}
"""
SQL = 'pipeline: copy\nsource: {type: sql, url: "sqlite:///source.db", tables: [orders]}' + TARGET
FILES = "pipeline: copy\nsource: {type: files, path: orders.csv, table: orders, key: id}" + TARGET


def run(directory: Path, text: str) -> None:
    async def story(world: World) -> Any:
        await world.run()

    tell(directory, text, story)


def test_a_row_of_a_database_that_changed_between_two_runs_leaves(tmp_path: Path) -> None:
    source, text = tmp_path / "source.db", SQL.replace("MODE", "mirror")
    execute(
        source,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT)",
        "INSERT INTO orders VALUES (1, 'open'), (2, 'open'), (3, 'closed')",
    )
    run(tmp_path, text)
    execute(source, "UPDATE orders SET status = 'closed' WHERE id = 1")

    run(tmp_path, text)

    assert rows(tmp_path / "target.db", "SELECT id FROM orders") == [(2,)]


def test_a_row_of_a_file_that_was_rewritten_leaves(tmp_path: Path) -> None:
    file, text = tmp_path / "orders.csv", FILES.replace("MODE", "mirror")
    file.write_text("id,status\n1,open\n2,open\n3,closed\n")
    run(tmp_path, text)
    written = tmp_path / "other"
    written.write_text("id,status\n1,closed\n2,open\n3,closed\n")
    written.replace(file)

    run(tmp_path, text)

    assert rows(tmp_path / "target.db", "SELECT id FROM orders") == [(2,)]


@pytest.mark.parametrize("mode", ["mirror", "scd2"])
def test_a_row_of_a_file_whose_later_line_does_not_pass_leaves(mode: str, tmp_path: Path) -> None:
    file, text = tmp_path / "orders.csv", FILES.replace("MODE", mode)
    file.write_text("id,status\n1,open\n2,open\n3,closed\n")
    run(tmp_path, text)
    with file.open("a") as grown:
        grown.write("1,closed\n3,open\n4,open\n4,closed\n")

    run(tmp_path, text)

    where = "" if mode == "mirror" else " WHERE _headwater_is_current"
    left = rows(tmp_path / "target.db", f"SELECT id FROM orders{where} ORDER BY id")
    assert left == [(2,), (3,)]


@pytest.mark.parametrize("mode", ["append", "scd2"])
def test_a_row_that_is_read_again_as_it_was_is_told_once(mode: str, tmp_path: Path) -> None:
    source, text = tmp_path / "source.db", SQL.replace("MODE", mode)
    execute(
        source,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT)",
        "INSERT INTO orders VALUES (1, 'open'), (2, 'open')",
    )
    run(tmp_path, text)

    run(tmp_path, text)

    assert rows(tmp_path / "target.db", "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
