"""The PostgreSQL source keeps the contract of sources."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.connectors.source import Source, SourceContext
from tests.connectors.postgres.source_session import source_context
from tests.contract.source_suite import SourceGround, SourceSuite
from tests.databases import Guest

CODE = (str(Path(__file__).resolve().parents[3]), sys.prefix, sys.base_prefix)
TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, note text);
CREATE TABLE lines (order_id bigint, line int, amount numeric(10,2), PRIMARY KEY (order_id, line));
ALTER TABLE lines REPLICA IDENTITY FULL;
"""
HISTORY = (
    "INSERT INTO customers SELECT i, 'customer ' || i FROM generate_series(1, 40) i",
    "INSERT INTO lines SELECT i / 3, i % 3, i * 1.5 FROM generate_series(1, 60) i",
    "UPDATE customers SET note = repeat('long ', 2000) WHERE id = 7",
    "BEGIN; UPDATE customers SET name = 'other' WHERE id < 5; DELETE FROM lines WHERE order_id = 2;"
    " INSERT INTO customers VALUES (100, 'late'); COMMIT",
    "UPDATE customers SET name = 'renamed' WHERE id = 7",
    "UPDATE lines SET line = line + 10 WHERE order_id = 4",
    "DELETE FROM customers WHERE id = 9",
)
CHANGES = 40 + 60 + 1 + (4 + 3 + 1) + 1 + 2 * 3 + 1
ROWS = (40 + 1 - 1) + (60 - 3)


class Ground:
    """A database whose history waits in a slot, or is there as rows."""

    def __init__(self, guest: Guest, *, is_streamed: bool) -> None:
        self._guest, self.is_exact = guest, is_streamed
        self.change_count = CHANGES if is_streamed else ROWS
        self._slot = f"given_{guest.value('SELECT oid FROM pg_database LIMIT 1')}"
        guest.execute(*filter(str.strip, TABLES.split(";")))
        guest.publish("customers", "lines")
        if is_streamed:
            guest.execute(f"SELECT pg_create_logical_replication_slot('{self._slot}', 'pgoutput')")
        guest.execute(*HISTORY)

    def open(self) -> Source:
        slot, mode = ({"name": self._slot}, "never") if self.is_exact else ({}, "initial")
        settings = {
            "url": self._guest.url,
            "tables": ["public.*"],
            "slot": slot,
            "snapshot": {"mode": mode},
        }
        return PostgresSource(PostgresSettings.model_validate(settings), self._context())

    def _context(self) -> SourceContext:
        return source_context(until_end=True)

    def outside(self) -> object:
        return (
            self._guest.rows("SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots"),
            self._guest.rows("SELECT * FROM pg_publication_tables"),
        )

    def held(self) -> object:
        """Whatever is open, but for code: a compiler in a thread of its own opens that when it
        likes."""
        found = 0
        for each in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # of the listing itself
                found += not str(each.readlink()).startswith(CODE)
        return found


class TestStream(SourceSuite):
    @pytest.fixture
    def ground(self, guest: Guest) -> Ground:
        return Ground(guest, is_streamed=True)

    async def test_dropping_twice_finds_nothing_the_second_time(self, ground: SourceGround) -> None:
        """The history goes with its slot, so that nothing can be read again."""
        assert await ground.open().drop()

        assert not await ground.open().drop()


class TestRowsThatAreThere(SourceSuite):
    @pytest.fixture
    def ground(self, guest: Guest) -> Ground:
        return Ground(guest, is_streamed=False)
