"""What happens in the database that is measured: rows, updates, small transactions, ticks."""

# python -m benchmarks.postgres_history ADDRESS COUNT; prints when each tick was committed.

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

TABLE, TICKS, PUBLICATION = "bench", "ticks", "bench"
TICKS_PER_S = 200

COLUMNS = """
    id int8 PRIMARY KEY, customer int4, quantity int4, price numeric(12,2), note text,
    placed_at timestamptz, is_gift bool, token uuid, details jsonb, kind int2
"""
ROW = """
    i, i * 7 % 1000003, i % 100, (i % 100000) / 100.0, 'some text of thirty-nine bytes, é at ' || i % 10,
    '2026-01-01'::timestamptz + i * interval '1 ms', i % 2 = 0, gen_random_uuid(),
    jsonb_build_object('a', i, 'b', 'xyz', 'c', jsonb_build_array(1, 2, 3)), i % 30000
"""  # noqa: E501


class Database:
    """One server in which the superuser writes histories, and slots are copied for each reader.

    A history is the last thing in the write-ahead log when it is read, so that all readers stop
    at its end.
    """

    def __init__(self, address: str, home: Path) -> None:
        self.address, self.home = address, home
        self._slots = 0

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            yield connection

    def execute(self, *statements: str) -> None:
        with self.connected() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def value(self, question: str) -> Any:
        with self.connected() as connection:
            [[found]] = connection.execute(question.encode()).fetchall()
        return found

    def new_table(self, *, rows: int = 0, identity: str = "DEFAULT") -> None:
        self.execute(
            f"DROP PUBLICATION IF EXISTS {PUBLICATION}",
            f"DROP TABLE IF EXISTS {TABLE}",
            f"CREATE TABLE {TABLE} ({COLUMNS})",
            f"ALTER TABLE {TABLE} REPLICA IDENTITY {identity}",
            f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {TABLE}"
            " WITH (publish_via_partition_root = true)",
            f"INSERT INTO {TABLE} SELECT {ROW} FROM generate_series(1, {rows}) i",
            f"VACUUM ANALYZE {TABLE}",
            "CHECKPOINT",
        )

    def new_ticks(self) -> None:
        self.execute(
            f"DROP PUBLICATION IF EXISTS {PUBLICATION}",
            f"DROP TABLE IF EXISTS {TICKS}",
            f"CREATE TABLE {TICKS} (id int8 PRIMARY KEY, at timestamptz DEFAULT now())",
            f"INSERT INTO {TICKS} VALUES (0)",  # so that its topic is there before the others
            f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {TICKS}"
            " WITH (publish_via_partition_root = true)",
        )

    def wait_for_reader(self, slot: str) -> None:
        """Until somebody streams from it."""
        active = f"SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name = '{slot}'"
        while not self.value(active):
            time.sleep(0.05)

    def insert(self, count: int, *, each: int) -> None:
        """In transactions of `each` rows."""
        with self.connected() as connection:
            for begin in range(1, count + 1, each):
                end = min(begin + each, count + 1) - 1
                made = f"SELECT {ROW} FROM generate_series({begin}, {end}) i"
                connection.execute(f"INSERT INTO {TABLE} {made}".encode())

    def update(self, count: int, *, each: int) -> None:
        with self.connected() as connection:
            for begin in range(1, count + 1, each):
                connection.execute(
                    f"UPDATE {TABLE} SET quantity = quantity + 1"
                    f" WHERE id BETWEEN {begin} AND {begin + each - 1}".encode()
                )

    def insert_singly(self, count: int) -> None:
        """One row per transaction, without a round trip for each."""
        self.execute(
            f"DO $$ BEGIN FOR i IN 1..{count} LOOP"
            f" INSERT INTO {TABLE} SELECT {ROW}; COMMIT; END LOOP; END $$"
        )

    @contextmanager
    def slot_before(self, history: Any) -> Iterator[str]:
        """The name of a slot that has the history before it."""
        self._slots += 1
        name = f"origin_{self._slots}"
        self.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
        history()
        # What was written without waiting becomes readable.
        self.execute("SET synchronous_commit = on", "SELECT pg_switch_wal()", "CHECKPOINT")
        try:
            yield name
        finally:
            self.drop(name)

    @contextmanager
    def copied(self, origin: str) -> Iterator[str]:
        """A slot of its own for one reader."""
        self._slots += 1
        name = f"reader_{self._slots}"
        self.execute(f"SELECT pg_copy_logical_replication_slot('{origin}', '{name}')")
        try:
            yield name
        finally:
            self.drop(name)

    def drop(self, slot: str) -> None:
        """Once its reader is gone, if it is there at all."""
        active = f"SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name = '{slot}'"
        while self.value(active):
            time.sleep(0.05)
        self.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            f" WHERE slot_name = '{slot}'"
        )


def tick(address: str, count: int) -> None:
    """Commits a row now and then, waited for, and prints when each commit returned."""
    times = list[int]()
    with psycopg.connect(address, autocommit=True) as connection:
        begun = time.perf_counter()
        for number in range(1, count + 1):
            time.sleep(max(0.0, begun + number / TICKS_PER_S - time.perf_counter()))
            connection.execute(f"INSERT INTO {TICKS} VALUES ({number})".encode())
            times.append(time.time_ns() // 1_000)
    for number, at_us in enumerate(times, start=1):
        print(number, at_us)


if __name__ == "__main__":
    tick(sys.argv[1], int(sys.argv[2]))
