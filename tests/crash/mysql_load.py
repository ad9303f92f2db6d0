"""A shop in MySQL or MariaDB, over and over the same keys."""

from random import Random

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
    """Small transactions, of which some are given up."""

    rows_per_s = 5_000

    def __init__(self, *, seed: int) -> None:
        self._random = Random(seed)

    def transact(self, connection: "pymysql.Connection[pymysql.cursors.Cursor]") -> int:
        is_given_up, rows = self._random.random() > 0.9, 0
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for _ in range(self._random.randrange(1, 6)):
                rows += cursor.execute(self._statement())
            cursor.execute("ROLLBACK" if is_given_up else "COMMIT")
        return 0 if is_given_up else rows

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
