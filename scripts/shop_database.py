"""A shop in PostgreSQL, MySQL or MariaDB, and people who buy there all the time."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, Protocol

import psycopg
import pymysql

from scripts.embedded_mysql import EmbeddedMysql

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


MYSQL_TABLES = (
    "CREATE TABLE customers (id bigint AUTO_INCREMENT PRIMARY KEY, name varchar(100) NOT NULL,"
    " email varchar(100), city varchar(50), since date NOT NULL DEFAULT (current_date))",
    "CREATE TABLE orders (id bigint AUTO_INCREMENT PRIMARY KEY, customer_id bigint NOT NULL,"
    " status varchar(20) NOT NULL, total decimal(12, 2) NOT NULL, note json,"
    " placed_at timestamp(6) NOT NULL DEFAULT current_timestamp(6))",
    "CREATE TABLE order_lines (order_id bigint, line int, article varchar(50) NOT NULL,"
    " quantity int NOT NULL, price decimal(10, 2) NOT NULL, PRIMARY KEY (order_id, line))",
)
CITIES = ("Bremen", "Lyon", "Malmö", "Porto", "Kraków")
ROWS_PER_INSERT = 1_000
Rows = list[tuple[Any, ...]]


class ShopDatabase(Protocol):
    """Where the shop is."""

    @property
    def title(self) -> str: ...

    @property
    def source(self) -> str:
        """The beginning of the pipeline file's `source`."""
        ...

    @property
    def namespace(self) -> str: ...

    @property
    def address(self) -> str: ...

    def make_shop(self, *, customers: int, orders: int) -> None: ...

    def transaction(self) -> AbstractContextManager["Cursor"]:
        """A session in which each block of `Cursor.whole` is a transaction."""
        ...

    def query(self, text: str) -> Rows: ...

    def moment(self) -> str:
        """The position of the source now, as `--as-of` takes it."""
        ...

    def columns(self, table: str) -> str:
        """The columns of a table, as the lake has their values."""
        ...


class Cursor(Protocol):
    """Executes statements of one session."""

    def whole(self) -> AbstractContextManager[object]:
        """A transaction."""
        ...

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None: ...

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        """Returns the `id` of the new row."""
        ...


@dataclass(frozen=True)
class PostgresShop:
    address: str
    title: str = "PostgreSQL"
    source: str = "type: postgres\n  url: ${env:SHOP_URL}\n  tables: [public.*]"
    namespace: str = "public"

    def make_shop(self, *, customers: int, orders: int) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(TABLES)
            connection.execute(SEED.format(customers=customers, orders=orders).encode())

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        with psycopg.connect(self.address, autocommit=True) as connection:
            yield _PostgresCursor(connection)

    def query(self, text: str) -> Rows:
        with psycopg.connect(self.address, autocommit=True) as connection:
            return list(connection.execute(text.encode()))

    def moment(self) -> str:
        return str(self.query("SELECT pg_current_wal_insert_lsn()")[0][0])

    def columns(self, table: str) -> str:
        is_orders = table == "orders"
        return "id, customer_id, status, total, note::text, placed_at" if is_orders else "*"


@dataclass(frozen=True)
class _PostgresCursor:
    connection: psycopg.Connection

    def whole(self) -> AbstractContextManager[object]:
        return self.connection.transaction()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        self.connection.execute(statement.encode(), values)

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        row = self.connection.execute(f"{statement} RETURNING id".encode(), values).fetchone()
        assert row is not None, "RETURNING returns"
        return int(row[0])


@dataclass(frozen=True)
class MysqlShop:
    server: EmbeddedMysql

    @property
    def title(self) -> str:
        return "MariaDB" if self.server.is_mariadb else "MySQL"

    @property
    def source(self) -> str:
        return f"type: {self.server.scheme}\n  url: ${{env:SHOP_URL}}\n  tables: [shop.*]"

    namespace = "shop"

    @property
    def address(self) -> str:
        return self.server.address_of("")

    def make_shop(self, *, customers: int, orders: int) -> None:
        self.server.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        self.server.execute(*MYSQL_TABLES, database=self.namespace)
        self._fill(
            "INSERT INTO customers (name, email, city) VALUES (%s, %s, %s)",
            [
                (f"Customer {n}", f"customer{n}@shop.example", CITIES[n % 5])
                for n in range(1, customers + 1)
            ],
        )
        self._fill(
            "INSERT INTO orders (customer_id, status, total, note) VALUES (%s, 'paid', %s, %s)",
            [
                (
                    1 + n % customers,
                    n * 7919 % 100_000 / 100,
                    f'{{"channel": "{"app" if n % 2 else "web"}"}}',
                )
                for n in range(1, orders + 1)
            ],
        )
        self._fill(
            "INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s)",
            [
                (1 + n // 2, n % 2, f"article {n % 500}", 1 + n % 4, n * 31 % 5_000 / 100)
                for n in range(2 * orders)
            ],
        )

    def _fill(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        with closing(self.server.connect(self.namespace)) as connection:
            for first in range(0, len(rows), ROWS_PER_INSERT):
                connection.cursor().executemany(statement, rows[first : first + ROWS_PER_INSERT])

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        with closing(self.server.connect(self.namespace)) as connection:
            yield _MysqlCursor(connection)

    def query(self, text: str) -> Rows:
        rows = self.server.execute("SET time_zone = '+00:00'", text, database=self.namespace)
        return [tuple(map(_in_utc, row)) for row in rows]

    def moment(self) -> str:
        name = "gtid_binlog_pos" if self.server.is_mariadb else "gtid_executed"
        [[gtids]] = self.server.execute(f"SELECT @@global.{name}")
        return f"stream={''.join(str(gtids).split())}"

    def columns(self, table: str) -> str:
        is_orders = table == "orders"
        return "id, customer_id, status, total, CAST(note AS CHAR), placed_at" if is_orders else "*"


@dataclass(frozen=True)
class _MysqlCursor:
    connection: "pymysql.Connection[Any]"

    @contextmanager
    def whole(self) -> Iterator[None]:
        self.connection.begin()
        yield
        self.connection.commit()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values)

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values)
            return int(cursor.lastrowid)


def _in_utc(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


@dataclass
class Customers:
    """Transactions one after the other, of which each is several changes, about so many a
    second."""

    shop: ShopDatabase
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
        with self.shop.transaction() as session:
            while not self._is_over.is_set():
                with self._between, session.whole():
                    buy_and_change(session, random)
                self.committed += 1
                self._is_over.wait(1 / self.per_second)

    def stop(self) -> None:
        self._is_over.set()


@contextmanager
def buying(shop: ShopDatabase) -> Iterator[Customers]:
    customers = Customers(shop)
    thread = threading.Thread(target=customers.run)
    thread.start()
    try:
        yield customers
    finally:
        customers.stop()
        thread.join()


OFTEN_CHANGED = 42
"""An order with a past, for whoever looks into the console."""


def buy_and_change(session: Cursor, random: Random) -> None:
    """An order comes, older ones change, and now and then one goes, lines and all."""
    newest = session.insert(
        "INSERT INTO orders (customer_id, status, total) VALUES (%s, 'new', %s)",
        (random.randint(1, 1_000), random.randint(100, 99_999) / 100),
    )
    for line in range(random.randint(1, 3)):
        session.execute(
            "INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s)",
            (newest, line, f"article {random.randint(1, 500)}", random.randint(1, 4), 9.5),
        )
    old = OFTEN_CHANGED if random.random() < 0.02 else random.randint(1, newest)
    session.execute(
        "UPDATE orders SET status = %s WHERE id BETWEEN %s AND %s",
        (random.choice(STATUSES), old, old + 2),
    )
    if random.random() < 0.1:
        gone = random.randint(1, newest)
        session.execute("DELETE FROM order_lines WHERE order_id = %s", (gone,))
        session.execute("DELETE FROM orders WHERE id = %s", (gone,))
