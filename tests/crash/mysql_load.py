"""A shop in MySQL or MariaDB, over and over the same keys."""

from random import Random
from typing import Any

import pymysql

ROWS = 4_000
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, note varchar(200), n int)",
    *(
        "INSERT INTO orders VALUES "
        + ", ".join(f"({at}, 'row {at}', 0)" for at in range(first, first + 1_000))
        for first in range(0, ROWS, 1_000)
    ),
)


class MysqlShopWriter:
    """Small transactions, of which some are given up, and some are XA transactions."""

    rows_per_s = 5_000

    def __init__(self, *, seed: int) -> None:
        self._random, self._next_xid = Random(seed), 0
        self._connection: Any = None

    def transact(self, connection: "pymysql.Connection[Any]") -> int:
        is_given_up, rows = self._random.random() > 0.9, 0
        with connection.cursor() as cursor:
            if connection is not self._connection:
                self._decide(cursor)
                self._connection = connection
            self._next_xid += 1
            xid = f"'{self._next_xid}'" if self._random.random() < 0.1 else ""
            cursor.execute(f"XA START {xid}" if xid else "BEGIN")
            for _ in range(self._random.randrange(1, 6)):
                rows += cursor.execute(self._statement())
            if xid:
                cursor.execute(f"XA END {xid}")
                cursor.execute(f"XA PREPARE {xid}")
            end = "ROLLBACK" if is_given_up else "COMMIT"
            cursor.execute(f"XA {end} {xid}" if xid else end)
        return 0 if is_given_up else rows

    def _decide(self, cursor: Any) -> None:
        """XA transactions that an earlier connection has prepared."""
        cursor.execute("SET lock_wait_timeout = 5, innodb_lock_wait_timeout = 5")
        cursor.execute("XA RECOVER")
        for *_, name in cursor.fetchall():
            xid = name.decode() if isinstance(name, bytes) else name
            cursor.execute(f"XA {self._random.choice(('COMMIT', 'ROLLBACK'))} '{xid}'")

    def _statement(self) -> str:
        key = self._random.randrange(ROWS + 500)
        return self._random.choice(
            (
                f"REPLACE INTO orders (id, note, n) VALUES ({key}, 'new {key}', {key})",
                f"UPDATE orders SET n = n + 1, note = 'changed' WHERE id = {key}",
                f"DELETE FROM orders WHERE id = {key}",
                f"UPDATE IGNORE orders SET id = id + 100000 WHERE id = {key}",
            )
        )
