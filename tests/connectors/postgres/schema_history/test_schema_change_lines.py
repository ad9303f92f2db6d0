"""Every line of docs/schema-changes.md is so: after the statement the log equals the table."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.core_log.foundation.errors import HeadwaterError
from scripts.embedded_postgres import embedded_postgres
from tests.connectors.postgres.schema_history.schema_change_lines import (
    FOLLOWED,
    IN_PLACE,
    LEFT_OUT,
    LINES,
    Line,
)
from tests.connectors.postgres.snapshot.table_log import Folded
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest, guest_in

PAGE = Path(__file__).parents[4] / "docs" / "schema-changes.md"
NEWEST = 18
ROWS = 5
ROWS_IN_PLACE = 3
"""One for each moment between the statements at which the source may look."""
LINE = re.compile(r"^\| (.+) \| \*\*(.+)\*\*: .+ \|$", re.MULTILINE)
NAMES = {f"t{number}": line for number, line in enumerate(LINES)}


@dataclass
class World:
    """A database with a table for each line, and the log of its source."""

    guest: Guest
    lines: dict[str, Line]
    is_followed: bool = False
    """A source runs while the tables are altered."""
    folded: Folded = field(default_factory=Folded)

    def source(self, *, until_end: bool) -> PostgresSource:
        given = {
            "url": self.guest.owner,
            "tables": ["public.*", "t*.*"],
            "snapshot": {"chunk_rows": 50, "parallel": 2},
            "heartbeat": "200ms",
        }
        context = replace(source_context(until_end=until_end), settle_ms=0)
        return PostgresSource(PostgresSettings.model_validate(given), context)

    async def live(self, *, until_end: bool) -> None:
        async with aclosing(
            self.source(until_end=until_end).changes(dict(self.folded.positions))
        ) as batches:
            async for batch in batches:
                self.folded.take(batch)
                if not until_end and (2,) in self.folded.tables.get("marker", {}):
                    break
        self.folded.killed()

    def create(self) -> None:
        self.guest.execute(
            "CREATE TABLE marker (id int PRIMARY KEY)", "INSERT INTO marker VALUES (1)"
        )
        for name, line in self.lines.items():
            self.guest.execute(*(each.format(t=name) for each in line.made))

    def alter(self) -> None:
        try:
            for name, line in self.lines.items():
                statements = (*line.statements, *line.after)
                self.guest.execute(*(each.format(t=name) for each in statements))
        finally:
            self.guest.execute("INSERT INTO marker VALUES (2)")

    def check(self, name: str) -> None:
        if name not in self.lines:
            pytest.skip("this version of PostgreSQL does not know it")
        line = self.lines[name]
        topic = line.now.format(t=name)
        if line.outcome == LEFT_OUT:
            assert len(self.folded.rows(topic)) >= ROWS
            return
        columns = columns_of(self.guest, topic)
        rows = in_table(self.guest, topic, columns)
        assert chosen(self.folded.rows(topic), columns) == rows
        reads = sum(table == topic for table, _ in self.folded.reads)
        if IN_PLACE in (line.outcome, self.is_followed and line.between):
            assert reads <= ROWS_IN_PLACE
        else:
            assert bool(reads) == (line.outcome != FOLLOWED)


@pytest.fixture(scope="module")
def at_rest(postgres: str) -> Iterator[World]:
    """The statements were run while no source followed the database."""
    with guest_in(postgres, "schema_change_lines") as guest:
        yield _world(guest, is_followed=False)


@pytest.fixture(scope="module")
def followed() -> Iterator[World]:
    """They were run while one did; this is the newest version of PostgreSQL."""
    with (
        embedded_postgres(version=NEWEST) as server,
        guest_in(server.address, "schema_change_lines") as guest,
    ):
        yield _world(guest, is_followed=True)


def _world(guest: Guest, *, is_followed: bool) -> World:
    version = int(guest.value("SHOW server_version_num")) // 10_000
    world = World(
        guest, {name: line for name, line in NAMES.items() if line.since <= version}, is_followed
    )
    asyncio.run(_history(world))
    return world


async def _history(world: World) -> None:
    world.guest.execute(
        "CREATE ACCESS METHOD headwater_heap TYPE TABLE HANDLER heap_tableam_handler",
    )
    if not world.guest.rows("SELECT FROM pg_tablespace WHERE spcname = 'headwater_elsewhere'"):
        world.guest.execute(
            "SET allow_in_place_tablespaces = on",
            "CREATE TABLESPACE headwater_elsewhere LOCATION ''",
        )
    world.create()
    apart = next(name for name, line in NAMES.items() if line.now == "{t}.{t}")
    has_schemas = int(world.guest.value("SHOW server_version_num")) >= 15_0000
    members = f"FOR TABLES IN SCHEMA {apart}" if has_schemas else ""
    world.guest.execute(
        f"CREATE PUBLICATION headwater_shop {members} WITH (publish_via_partition_root = true)"
    )
    await world.live(until_end=True)
    world.folded.reads.clear()
    world.folded.truncates = 0
    if world.is_followed:
        altering = asyncio.ensure_future(asyncio.to_thread(world.alter))
        while (2,) not in world.folded.tables.get("marker", {}):
            with suppress(HeadwaterError):  # a table that got another name ends a life
                await world.live(until_end=False)
        await altering
    else:
        world.alter()
    await world.live(until_end=True)
    await world.live(until_end=True)


def test_the_page_has_every_line_and_no_other() -> None:
    page = PAGE.read_text()

    said = LINE.findall(page)

    assert said == [(line.form, line.outcome) for line in LINES]


EVERY = pytest.mark.parametrize("name", NAMES, ids=[line.form for line in LINES])


@EVERY
def test_a_line_holds_for_a_source_at_rest(at_rest: World, name: str) -> None:
    at_rest.check(name)


@pytest.mark.integration
@EVERY
def test_a_line_holds_for_a_source_that_runs(followed: World, name: str) -> None:
    followed.check(name)


def columns_of(guest: Guest, table: str) -> dict[str, str]:
    """How each is asked for so that it looks as in the log, which has no generated ones."""
    columns = guest.rows(
        "SELECT attname, typtype, typname FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid"
        f" WHERE attrelid = '{table}'::regclass"
        " AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"
    )
    return {name: _asked(name, kind, type) for name, kind, type in columns}


def _asked(name: str, kind: str, type: str) -> str:
    if kind == "c":
        return f"{name}::text"
    return name if type in ("timestamptz", "timestamp", "numeric") else f"to_json({name})"


def in_table(guest: Guest, table: str, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    only = "" if is_partitioned(guest, table) else "ONLY"
    rows = guest.rows(f"SELECT {', '.join(columns.values())} FROM {only} {table}")
    return chosen([dict(zip(columns, row, strict=True)) for row in rows], columns)


def is_partitioned(guest: Guest, table: str) -> bool:
    return bool(guest.value(f"SELECT relkind = 'p' FROM pg_class WHERE oid = '{table}'::regclass"))


def chosen(rows: Sequence[dict[str, Any]], columns: Iterable[str]) -> list[dict[str, Any]]:
    """Null where a row of the log is older than a column."""
    return sorted(({name: row.get(name) for name in columns} for row in rows), key=repr)
