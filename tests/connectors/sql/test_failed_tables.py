"""A table that cannot be read, or only in part, is held alone, and goes on once it is cured."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headwater.connectors.left_out_tables import REFUSED
from headwater.connectors.source import Remark, SourceReport
from headwater.connectors.sql import spool
from headwater.connectors.sql.source import SqlSource
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import ConfigError, DiskFull, SourceRejected
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.file.loader import load
from headwater.pipelines.loops.assembly import run_task
from headwater.pipelines.reports import RemarksMade, Report
from tests.connectors.sql.shop import Rounds, Shop, one_round
from tests.pipelines.task_runs import task_run

DAYS = {"sqlite": "'today'", "postgresql": "'infinity'", "mariadb": "'0000-00-00'"}
"""Values that a column of days may have, and that are of no type of ours."""
NONE_OF_IT: dict[str, Any] = {"deletes": "none"}
BY_CURSOR: dict[str, Any] = {"cursor": {"days": ["id"]}}


@pytest.fixture
def days(shop: Shop) -> Shop:
    """Between two others a table of which the third row cannot be read."""
    allowed = ["SET SESSION sql_mode = ''"] if shop.kind == "mariadb" else []
    bad = DAYS[shop.kind]
    shop.execute(
        *allowed,
        *(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, day DATE)" for name in ("a", "days", "z")),
        *(f"INSERT INTO {name} VALUES (1, '2026-01-01')" for name in ("a", "z")),
        f"INSERT INTO days VALUES (1, '2026-01-01'), (2, NULL), (3, {bad}), (4, NULL)",
    )
    return shop


def watched(source: SqlSource) -> list[SourceReport]:
    said: list[SourceReport] = []
    context = source._context
    source._context = replace(context, report=said.append)
    return said


def left_out(said: list[SourceReport]) -> tuple[str, ...]:
    [*_, last] = [each for each in said if isinstance(each, Remark) and each.name == REFUSED]
    return () if last.finding is None else last.finding.left_out


@pytest.mark.parametrize("choices", [NONE_OF_IT, BY_CURSOR], ids=["whole", "cursor"])
async def test_a_table_whose_reading_fails_half_way_holds_up_no_other(
    days: Shop, choices: dict[str, Any]
) -> None:
    source = days.source(batch_rows=2, until_end=True, **choices)
    said = watched(source)

    batches = [batch async for batch in source.changes({})]
    days.execute("DELETE FROM days WHERE id = 3")
    again = days.source(batch_rows=2, until_end=True, **choices)
    more, _ = await one_round(again, {})

    tables = {changes.schema.table.name for batch in batches for changes in batch.tables}
    assert tables == {"a", "days", "z"} and batches[-1].positions
    assert left_out(said) == (f"{days.prefix}days",)
    assert sorted(row["id"] for _, row in more) == [1, 1, 1, 2, 4]


async def test_a_table_that_a_start_empties_is_emptied_only_when_all_of_it_was_read(
    days: Shop,
) -> None:
    source = days.source(deletes="compare", batch_rows=2, until_end=False)
    said, rounds = watched(source), Rounds(source)

    first = await rounds.until(4)
    held = left_out(said)
    days.execute("DELETE FROM days WHERE id = 3")
    more = await rounds.until(4)
    await rounds.close()

    assert [letter for letter, _ in first] == ["t", "r", "t", "r"]
    assert held == (f"{days.prefix}days",)
    assert [(letter, row["id"]) for letter, row in more] == [
        ("t", None),
        ("r", 1),
        ("r", 2),
        ("r", 4),
    ]


async def test_a_source_without_a_readable_table_says_so(days: Shop) -> None:
    with pytest.raises(SourceRejected, match="not of its type"):
        await one_round(days.source(tables=["days"], batch_rows=2))


@contextmanager
def other_user(shop: Shop) -> Iterator[Shop]:
    """One who may read the tables `a` and `z`."""
    mine = shop.engine.url
    made = ["CREATE ROLE other LOGIN", "GRANT SELECT ON a, z TO other"]
    gone = ["DROP OWNED BY other", "DROP ROLE other"]
    if shop.kind == "mariadb":
        rights = {"a": "SELECT", "days": "INSERT", "z": "SELECT"}
        made = [f"GRANT {each} ON `{mine.database}`.{on} TO other" for on, each in rights.items()]
        made, gone = ["CREATE USER other", *made], ["DROP USER other"]
    shop.execute(*made)
    url = mine.set(username="other").render_as_string(hide_password=False)
    other = Shop(shop.kind, url, shop.directory)
    try:
        yield other
    finally:
        other.engine.dispose()
        shop.execute(*gone)


async def test_a_table_that_our_user_may_not_read_holds_up_no_other(days: Shop) -> None:
    if days.kind == "sqlite":
        pytest.skip("SQLite knows no rights")
    with other_user(days) as other:
        source = other.source()
        said = watched(source)

        found, _ = await one_round(source)
        held = left_out(said)
        where = f"`{days.engine.url.database}`.days" if days.kind == "mariadb" else "days"
        days.execute(f"GRANT SELECT ON {where} TO other", "DELETE FROM days WHERE id = 3")
        more, _ = await one_round(source)

    assert [row["id"] for _, row in found] == [1, 1] and len(more) == 5
    assert held == (f"{days.prefix}days",) and left_out(said) == ()


async def test_a_disk_without_room_for_what_is_kept_meanwhile_is_said(
    days: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(spool, "TemporaryFile", full)

    with pytest.raises(DiskFull, match="the disk is full") as found:
        await one_round(days.source(tables=["a"], deletes="compare"))

    assert "TMPDIR" in found.value.hint
    assert found.value.facts["path"] == tempfile.gettempdir()


def test_kept_batches_come_back_in_order() -> None:
    batches = [pa.record_batch({"id": [first, first + 1]}) for first in (1, 3)]

    with spool.Spool() as kept:
        for each in batches:
            kept.add(each)
        found = list(kept.batches())

    assert found == batches


async def test_a_form_that_must_not_enter_the_log_holds_its_table_alone(shop: Shop) -> None:
    shop.execute(
        *(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, email VARCHAR(9))" for name in "ab"),
        *(f"INSERT INTO {name} VALUES (1, 'secret')" for name in "ab"),
    )
    held = {"a"}

    async def refusal(schema: TableSchema, *, is_next: bool = False) -> ConfigError | None:
        assert is_next
        return ConfigError("a rule hides it") if schema.table.name in held else None

    source = shop.source(until_end=False)
    source._context = replace(source._context, refusal=refusal)
    rounds = Rounds(source)
    first = await rounds.until(1)
    others = {each.name for each in source._failed}
    held.clear()
    more = await rounds.until(1)
    await rounds.close()

    assert others == {"a"} and len(first) == len(more) == 1


HIDING = """
pipeline: {{name: shop, salt: a secret of sixteen or more}}
source: {{type: sql, url: "{url}", tables: ["*"]}}
log: {{compression: none}}
transform: [{{table: [{tables}], mask: {{email: hash}}}}{more}]
sink: {{type: sql, url: "sqlite:///target.db"}}
"""


async def test_a_renamed_table_is_left_out_until_a_rule_hides_its_columns(shop: Shop) -> None:
    shop.execute(
        *(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, email VARCHAR(9))" for name in "ab"),
        *(f"INSERT INTO {name} VALUES (1, 'secret')" for name in "ab"),
    )
    hidden = [f"{shop.prefix}{name}" for name in "ab"]
    first = await held_tables(shop, *hidden)
    shop.execute("ALTER TABLE a RENAME TO c")
    held = [await held_tables(shop, *hidden) for _ in range(2)]
    after = await held_tables(shop, *hidden, f"{shop.prefix}c")

    assert not first and held == [{f"{shop.prefix}c"}] * 2 and not after
    logs = [each.read_bytes() for each in shop.directory.glob("data/**/*.log")]
    assert not any(b"secret" in each for each in logs)


@pytest.mark.parametrize(
    "columns", ["id, mail", "number, mail", "id, mail, note"], ids=["column", "key", "others"]
)
async def test_a_table_and_its_hidden_column_renamed_at_once_are_left_out(
    shop: Shop, columns: str
) -> None:
    names = dict(zip(columns.split(", "), ("id", "email", "name"), strict=False))
    types = {"id": "INTEGER PRIMARY KEY", "email": "VARCHAR(9)", "name": "VARCHAR(9)"}
    values = {"id": "1", "email": "'secret'", "name": "'x'"}
    shop.execute(
        f"CREATE TABLE a ({', '.join(f'{each} {types[each]}' for each in names.values())})",
        f"INSERT INTO a VALUES ({', '.join(values[each] for each in names.values())})",
        "CREATE TABLE b (id INTEGER PRIMARY KEY, email VARCHAR(9))",
    )
    hidden = [f"{shop.prefix}{name}" for name in "ab"]
    await held_tables(shop, *hidden)
    renamed = [
        f"ALTER TABLE c RENAME COLUMN {old} TO {new}" for new, old in names.items() if new != old
    ]
    shop.execute("ALTER TABLE a RENAME TO c", *renamed, "CREATE TABLE d (id INTEGER PRIMARY KEY)")

    held = [await held_tables(shop, *hidden) for _ in range(2)]
    rule = f", {{table: {shop.prefix}c, mask: {{mail: hash}}}}"
    after = await held_tables(shop, *hidden, more=rule)

    assert held == [{f"{shop.prefix}c"}] * 2 and not after
    logs = [each.read_bytes() for each in shop.directory.glob("data/**/*.log")]
    assert not any(b"secret" in each for each in logs)


async def held_tables(shop: Shop, *hidden: str, more: str = "") -> set[str]:
    """The tables that a run with a rule for some of them leaves out."""
    told = list[Report]()
    file = shop.directory / "pipeline.yaml"
    file.write_text(HIDING.format(url=shop.url, tables=", ".join(hidden), more=more))
    [loaded] = load(file, environment={})
    data = shop.directory / "data"
    log = await EmbeddedLog.open(BrokerSettings(data=data, listen="127.0.0.1:0"))
    try:
        await run_task(task_run(loaded, "source", log, report=told.append))
    finally:
        await log.close()
    return {name for each in told if isinstance(each, RemarksMade) for name in each.left_out}
