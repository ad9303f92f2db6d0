"""What `plan --ddl` says of a statement is what docs/schema-changes.md says, and nothing stays."""

from dataclasses import replace
from typing import Any

import pytest

from headwater.connectors.postgres.ddl_rehearsal import rehearse
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.source import DdlOutcome
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError
from tests.connectors.postgres.schema_history.schema_change_lines import LINES, Line
from tests.connectors.postgres.schema_history.test_read_again import CREATE
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest


async def rehearsed(
    guest: Guest, *statements: str, snapshot: Any = None, **context: Any
) -> list[DdlOutcome]:
    given = {"url": guest.owner, "tables": ["public.*"], "snapshot": snapshot or {}}
    settings = PostgresSettings.model_validate(given)
    return await rehearse(settings, replace(source_context(), **context), statements)


def are_alters(line: Line) -> bool:
    return all(each.lstrip().upper().startswith("ALTER TABLE") for each in line.statements)


async def test_each_alter_table_of_the_page_is_foretold(guest: Guest) -> None:
    version = int(guest.value("SHOW server_version_num")) // 10_000
    lines = [each for each in LINES if each.since <= version and are_alters(each)]
    foretold = {}

    for number, line in enumerate(lines):
        table = f"t{number}"
        guest.execute(*(each.format(t=table) for each in line.made))
        statements = (each.format(t=table) for each in line.statements)
        foretold[line.form] = (await rehearsed(guest, *statements))[0].outcome
        guest.execute(f"DROP TABLE IF EXISTS {table} CASCADE")

    assert len(lines) > 50
    assert foretold == {line.form: line.outcome for line in lines}


async def test_the_table_stays_as_it_is(guest: Guest) -> None:
    guest.execute(*CREATE)
    before = guest.rows("SELECT attname, atttypid FROM pg_attribute ORDER BY attrelid, attnum")

    [said] = await rehearsed(guest, "ALTER TABLE items ALTER b TYPE text USING 'b' || b, ADD c int")

    assert said.schema is not None
    assert said.schema.names == ("id", "a", "b", "m", "c")
    assert before == guest.rows(
        "SELECT attname, atttypid FROM pg_attribute ORDER BY attrelid, attnum"
    )


async def test_a_statement_that_would_hold_the_table_is_reported_with_its_cost(
    guest: Guest,
) -> None:
    guest.execute(*CREATE, "ANALYZE items")
    rename = "ALTER TABLE public.items RENAME a TO c"

    [forbidden] = await rehearsed(guest, rename, schema_changes={"drop_column": "fail"})
    limit = {"reread_max_rows": 10}
    [large] = await rehearsed(guest, "ALTER TABLE items ALTER b TYPE bigint", snapshot=limit)
    [in_place] = await rehearsed(guest, rename, snapshot=limit)

    assert forbidden.cost.startswith("about 120 rows, ")
    assert "`schema_changes` does not allow drop_column" in forbidden.quarantine
    assert "headwater snapshot start shop/public.items" in large.quarantine
    assert (in_place.outcome, in_place.cost, in_place.quarantine) == ("in place", "", "")


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE items",
        "ALTER TABLE items ADD c int; DROP TABLE items",
        "ALTER TABLE items ADD c int -- and more",
        "ALTER TABLE items ADD c int REFERENCES items",
        "ALTER TABLE items OWNER TO postgres, ADD c int",
        "DELETE FROM items",
    ],
)
async def test_a_statement_other_than_one_alter_table_is_not_executed(
    guest: Guest, statement: str
) -> None:
    guest.execute(*CREATE)

    with pytest.raises(ConfigError):
        await rehearsed(guest, statement)

    assert guest.value("SELECT count(*) FROM items") == 120


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE items DROP nothing", "ALTER TABLE nowhere ADD c int"]
)
async def test_a_refusal_of_the_server_is_an_error(guest: Guest, statement: str) -> None:
    guest.execute(*CREATE)

    with pytest.raises(HeadwaterError):
        await rehearsed(guest, statement)
