"""A shop in PostgreSQL, and people who buy there all the time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import psycopg

TABLES = """
CREATE TABLE customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, email text, city text,
    since date NOT NULL DEFAULT current_date
);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer_id bigint NOT NULL,
    status text NOT NULL, total numeric(12, 2) NOT NULL, note jsonb,
    placed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE order_lines (
    order_id bigint, line int, article text NOT NULL, quantity int NOT NULL,
    price numeric(10, 2) NOT NULL, PRIMARY KEY (order_id, line)
);
"""
SEED = """
INSERT INTO customers (name, email, city)
SELECT 'Customer ' || n, 'customer' || n || '@shop.example',
       (ARRAY['Bremen', 'Lyon', 'Malmö', 'Porto', 'Kraków'])[1 + n % 5]
FROM generate_series(1, {customers}) AS n;
INSERT INTO orders (customer_id, status, total, note)
SELECT 1 + n % {customers}, 'paid', (n * 7919::bigint % 100000) / 100.0,
       jsonb_build_object('channel', CASE n % 2 WHEN 0 THEN 'web' ELSE 'app' END)
FROM generate_series(1, {orders}) AS n;
INSERT INTO order_lines
SELECT 1 + n / 2, n % 2, 'article ' || n % 500, 1 + n % 4, (n * 31::bigint % 5000) / 100.0
FROM generate_series(0, 2 * {orders} - 1) AS n;
"""
STATUSES = ("new", "paid", "packed", "sent", "returned")


def make_shop(address: str, *, customers: int, orders: int) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute(SEED.format(customers=customers, orders=orders).encode())


@dataclass
class Customers:
    """Transactions one after the other, of which each is several changes, about so many a
    second."""

    address: str
    per_second: int = 100
    committed: int = 0
    _is_over: threading.Event = field(default_factory=threading.Event)
    _between: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """No transaction is open meanwhile."""
        with self._between:
            yield

    def run(self) -> None:
        random = Random(7)
        with psycopg.connect(self.address, autocommit=True) as connection:
            while not self._is_over.is_set():
                with self._between, connection.transaction():
                    buy_and_change(connection, random)
                self.committed += 1
                self._is_over.wait(1 / self.per_second)

    def stop(self) -> None:
        self._is_over.set()


@contextmanager
def buying(address: str) -> Iterator[Customers]:
    customers = Customers(address)
    thread = threading.Thread(target=customers.run)
    thread.start()
    try:
        yield customers
    finally:
        customers.stop()
        thread.join()


def buy_and_change(connection: psycopg.Connection, random: Random) -> None:
    """An order comes, older ones change, and now and then one goes, lines and all."""
    row = connection.execute(
        "INSERT INTO orders (customer_id, status, total) VALUES (%s, 'new', %s) RETURNING id",
        (random.randint(1, 1_000), random.randint(100, 99_999) / 100),
    ).fetchone()
    assert row is not None, "RETURNING returns"
    newest = int(row[0])
    for line in range(random.randint(1, 3)):
        connection.execute(
            "INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s)",
            (newest, line, f"article {random.randint(1, 500)}", random.randint(1, 4), 9.5),
        )
    connection.execute(
        "UPDATE orders SET status = %s WHERE id BETWEEN %s AND %s",
        (random.choice(STATUSES), (old := random.randint(1, newest)), old + 2),
    )
    if random.random() < 0.1:
        gone = random.randint(1, newest)
        connection.execute("DELETE FROM order_lines WHERE order_id = %s", (gone,))
        connection.execute("DELETE FROM orders WHERE id = %s", (gone,))
