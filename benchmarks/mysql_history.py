"""What happens in the MySQL that is measured: rows, updates, small transactions, ticks."""

# python -m benchmarks.mysql_history PORT COUNT; prints when each tick was committed.

import sys
import time
from typing import Any

import pymysql

from benchmarks.postgres_history import TABLE, TICKS, TICKS_PER_S
from scripts.embedded_mysql import EmbeddedMysql

DATABASE, DOCUMENTS, NUMBERS = "bench", "documents", "numbers"
NUMBERS_MAX = 10_000
LOOKS_MAX = 2_400
SERVER = {
    "innodb-buffer-pool-size": "1G",
    "max-binlog-size": "1G",
    "innodb-redo-log-capacity": "2G",
    "net-write-timeout": "3600",
    "innodb-doublewrite": "OFF",
    "max-allowed-packet": "1G",
}
COLUMNS = """
    id bigint PRIMARY KEY, customer int, quantity int, price decimal(12,2), note varchar(100),
    placed_at timestamp(6) NULL, is_gift tinyint(1), token char(36), details text, kind smallint
"""
ROW = """
    {i}, {i} * 7 % 1000003, {i} % 100, ({i} % 100000) / 100.0,
    CONCAT('some text of thirty-nine bytes, é at ', {i} % 10),
    '2026-01-01' + INTERVAL {i} * 1000 MICROSECOND, {i} % 2 = 0, UUID(),
    CONCAT('{{"a": ', {i}, ', "b": "xyz", "c": [1, 2, 3]}}'), {i} % 30000
"""
DOCUMENT = """
    {i}, JSON_OBJECT('id', {i}, 'name', CONCAT('customer ', {i}), 'price', {i} / 8,
    'tags', JSON_ARRAY('red', 'green', 'blue', {i} % 7), 'text', REPEAT('some words ', 20),
    'address', JSON_OBJECT('street', CONCAT({i}, ' Long Street'), 'city', 'Gdańsk', 'zip', {i}),
    'flags', JSON_ARRAY(TRUE, FALSE, NULL, 1.5, 100000, 'x'), 'more', JSON_OBJECT('k', 1, 'l', 2))
"""


class Database:
    """One server in which root writes histories. A history is the last thing in the binary log when
    it is read, so that all readers stop at its end."""

    def __init__(self, server: EmbeddedMysql) -> None:
        self.server = server
        self.execute(
            f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4",
            f"CREATE TABLE {DATABASE}.{NUMBERS} (n int PRIMARY KEY)",
            "SET cte_max_recursion_depth = 100000",
            f"INSERT INTO {DATABASE}.{NUMBERS} WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT"
            f" n + 1 FROM s WHERE n < {NUMBERS_MAX - 1}) SELECT n FROM s",
        )

    @property
    def address(self) -> str:
        return f"mysql://root@127.0.0.1:{self.server.port}"

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute("SET time_zone = '+00:00'", *statements)

    def value(self, question: str) -> Any:
        [[found]] = self.execute(question)
        return found

    def new_table(self, *, rows: int = 0, columns: str = COLUMNS, row: str = ROW) -> None:
        self.execute(
            f"DROP TABLE IF EXISTS {DATABASE}.{TABLE}",
            f"CREATE TABLE {DATABASE}.{TABLE} ({columns})",
        )
        self.insert(rows, each=NUMBERS_MAX, row=row)
        self.execute(f"ANALYZE TABLE {DATABASE}.{TABLE}")

    def new_ticks(self) -> None:
        self.execute(
            f"DROP TABLE IF EXISTS {DATABASE}.{TICKS}",
            f"CREATE TABLE {DATABASE}.{TICKS} (id bigint PRIMARY KEY, at timestamp(6) NULL)",
            f"INSERT INTO {DATABASE}.{TICKS} VALUES (0, NOW(6))",  # so that its topic is there
        )

    def insert(self, count: int, *, each: int, row: str = ROW) -> None:
        """In transactions of `each` rows."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            for begin in range(1, count + 1, each):
                end = min(begin + each, count + 1)
                connection.begin()
                for part in range(begin, end, NUMBERS_MAX):
                    size = min(NUMBERS_MAX, end - part)
                    made = row.format(i=f"({part} + n)")
                    cursor.execute(
                        f"INSERT INTO {DATABASE}.{TABLE} SELECT {made} FROM {DATABASE}.{NUMBERS}"
                        f" WHERE n < {size}"
                    )
                connection.commit()

    def update(self, count: int, *, each: int) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            for begin in range(1, count + 1, each):
                cursor.execute(
                    f"UPDATE {DATABASE}.{TABLE} SET quantity = quantity + 1"
                    f" WHERE id BETWEEN {begin} AND {begin + each - 1}"
                )

    def insert_singly(self, count: int) -> None:
        """One row per transaction, without a round trip for each."""
        self.execute(
            f"DROP PROCEDURE IF EXISTS {DATABASE}.singly",
            f"CREATE PROCEDURE {DATABASE}.singly() BEGIN DECLARE i BIGINT DEFAULT 1;"
            f" WHILE i <= {count} DO INSERT INTO {DATABASE}.{TABLE} SELECT {ROW.format(i='i')};"
            " COMMIT; SET i = i + 1; END WHILE; END",
            f"CALL {DATABASE}.singly()",
        )

    def wait_for_readers(self, count: int) -> None:
        """Until so many stream from it; at most some minutes."""
        dumps = (
            "SELECT count(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
        )
        for _ in range(LOOKS_MAX):
            if self.value(dumps) >= count:
                return
            time.sleep(0.05)
        raise AssertionError("nobody streams from the server")


def tick(port: int, count: int) -> None:
    """Commits a row now and then, waited for, and prints when each commit returned."""
    times = list[int]()
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
    with connection, connection.cursor() as cursor:
        begun = time.perf_counter()
        for number in range(1, count + 1):
            time.sleep(max(0.0, begun + number / TICKS_PER_S - time.perf_counter()))
            cursor.execute(f"INSERT INTO {DATABASE}.{TICKS} VALUES ({number}, NOW(6))")
            times.append(time.time_ns() // 1_000)
    for number, at_us in enumerate(times, start=1):
        print(number, at_us)


if __name__ == "__main__":
    tick(int(sys.argv[1]), int(sys.argv[2]))
