"""A shop in PostgreSQL at about 5,000 rows a second."""

from random import Random

import psycopg

TABLES = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, note text, n int NOT NULL, big text)",
    "ALTER TABLE orders ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE items (order_id bigint, line int, n int NOT NULL, PRIMARY KEY (order_id, line))",
    "INSERT INTO orders SELECT g, 'as it was ' || g, 0, CASE g % 500 WHEN 0 THEN"
    " repeat(md5(g::text), 100) END FROM generate_series(1, 20000) g",
    "INSERT INTO items SELECT g / 3, g % 3, 0 FROM generate_series(3, 30000) g",
)
ROWS_PER_S = 5_000
NEXT_ID = 1_000_000


class ShopWriter:
    """Ranges of rows, large and small."""

    rows_per_s = ROWS_PER_S

    def __init__(self, *, seed: int) -> None:
        self._random, self._next_id = Random(seed), NEXT_ID * (1 + seed)

    def transact(self, connection: psycopg.Connection) -> int:
        kind = self._random.random()
        statements = self._ordinary()
        if kind < 0.02:
            statements = self._large()
        elif kind < 0.03:
            statements = ["TRUNCATE items"]
        is_given_up = kind > 0.97
        rows = 0
        try:
            with connection.transaction(force_rollback=is_given_up):
                for statement in statements:
                    rows += max(connection.execute(statement.encode()).rowcount, 0)
                if kind > 0.9:
                    with connection.transaction(force_rollback=True):
                        connection.execute("UPDATE orders SET n = -1 WHERE id < 100")
        except psycopg.errors.LockNotAvailable:
            return 0  # somebody copies the table that was to be emptied
        return 0 if is_given_up else rows

    def _ordinary(self) -> list[str]:
        first, some = self._next_id, self._random.randrange(1, 20_000)
        self._next_id += 20
        return [
            f"INSERT INTO orders SELECT g, 'new', 0 FROM generate_series({first}, {first + 9}) g",
            f"INSERT INTO items SELECT {first}, g, 0 FROM generate_series(1, 10) g",
            f"UPDATE orders SET n = n + 1 WHERE id BETWEEN {some} AND {some + 14}",
            f"UPDATE items SET n = n + 1 WHERE order_id BETWEEN {first - 400} AND {first - 390}",
            f"DELETE FROM orders WHERE id BETWEEN {first - 4_000} AND {first - 3_996}",
            f"UPDATE orders SET id = id + 10 WHERE id = {first + 9 - self._random.randrange(10)}",
        ]

    def _large(self) -> list[str]:
        some = self._random.randrange(1, 18_000)
        return [
            f"UPDATE orders SET n = n + 1, note = 'l' WHERE id BETWEEN {some} AND {some + 1_500}"
        ]
