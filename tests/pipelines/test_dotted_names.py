"""A table whose schema and name contain dots is one table for the source, targets and commands."""

from pathlib import Path
from typing import Any

import pytest

from headwater.pipelines.terminal import exit_codes
from headwater.pipelines.terminal.control_writer import find_table
from tests.databases import Guest

FILE = """
pipeline: {{name: shop, schema_changes: {{change_type: fail}}}}
source: {{type: postgres, url: "{url}", tables: [my.app.*]}}
sink: {{type: sql, url: "sqlite:///target.db", commit_every: 0s}}
"""
TABLE, NAME = '"my.app"."o.rders"', "shop/my.app.o.rders"


@pytest.mark.slow
def test_a_table_of_postgresql_is_found_by_every_command(
    guest: Guest, tmp_path: Path, headwater: Any
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.owner))

    def call(*arguments: str) -> int:
        given = (file,) if arguments[0] == "run" else ("-f", file)
        ran: int = headwater(*arguments, *given).code
        guest.until_nobody_streams()
        return ran

    guest.execute(
        'CREATE SCHEMA "my.app"',
        f"CREATE TABLE {TABLE} (id int PRIMARY KEY, note text)",
        f"INSERT INTO {TABLE} VALUES (1, 'a'), (2, 'b')",
    )
    assert call("run", "--once") == exit_codes.OK
    guest.execute(f"DELETE FROM {TABLE} WHERE id = 1", f"INSERT INTO {TABLE} VALUES (3, 'c')")

    assert call("run", "--once") == exit_codes.OK
    assert call("verify", NAME) == exit_codes.OK
    assert call("drop", "shop/o.rders", "--data", "--yes") == exit_codes.OK
    assert call("run", "--once") == exit_codes.OK
    guest.execute(f"ALTER TABLE {TABLE} ALTER note TYPE int USING id")
    assert call("run", "--once") == exit_codes.DIFFERENT
    assert call("snapshot", "start", NAME) == exit_codes.OK
    assert call("run", "--once") == exit_codes.DIFFERENT  # the target waits for its rebuild
    assert call("rebuild", NAME, "--swap") == exit_codes.OK
    assert call("run", "--once") == exit_codes.OK
    assert call("verify", NAME) == exit_codes.OK


def test_a_bare_name_may_have_a_dot() -> None:
    known = {"public.a.b", "public.c"}

    assert find_table("a.b", known, pipeline="shop") == "public.a.b"
