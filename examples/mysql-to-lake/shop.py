"""A small shop in MySQL or MariaDB: made, changed, compared with its copy, and taken down."""

import os
import sys
from urllib.parse import unquote, urlsplit

import pymysql
from deltalake import DeltaTable

CREATE = (
    "DROP DATABASE IF EXISTS headwater_shop",
    "CREATE DATABASE headwater_shop CHARACTER SET utf8mb4",
    "USE headwater_shop",
    "CREATE TABLE customers (id int PRIMARY KEY, name varchar(100) NOT NULL, about json)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL, total decimal(10, 2),"
    " status enum('new', 'paid', 'shipped'))",
)
CHANGE = (
    "UPDATE orders SET status = 'shipped' WHERE id % 4 = 0",
    "DELETE FROM orders WHERE id % 100 = 0",
    "UPDATE customers SET name = upper(name) WHERE id <= 50",
    "UPDATE customers SET id = id + 1000 WHERE id > 490",
    "XA START 'undone'",
    "INSERT INTO orders VALUES (100000, 1, 1.00, 'paid')",
    "XA END 'undone'",
    "XA PREPARE 'undone'",
    "XA ROLLBACK 'undone'",
    "ALTER TABLE orders ADD COLUMN note varchar(100)",
    "INSERT INTO orders VALUES (100001, 1, 9.99, 'new', 'the first with a note')",
)
COLUMNS = {
    "customers": ("id", "name"),
    "orders": ("id", "customer", "total", "status"),
}


def fill(cursor: pymysql.cursors.Cursor) -> None:
    cursor.executemany(
        "INSERT INTO customers VALUES (%s, %s, %s)",
        [(i, f"customer {i}", f'{{"number": {i}}}') for i in range(1, 501)],
    )
    cursor.executemany(
        "INSERT INTO orders VALUES (%s, %s, %s, 'new')",
        [(i, 1 + i % 500, i * 1.25) for i in range(1, 20001)],
    )


def compare(cursor: pymysql.cursors.Cursor) -> None:
    for table, columns in COLUMNS.items():
        cursor.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY id")
        copy = DeltaTable(f"lake/headwater_shop.{table}").to_pyarrow_table(columns=list(columns))
        rows = [tuple(row.values()) for row in copy.sort_by("id").to_pylist()]
        verdict = "equal" if rows == list(cursor.fetchall()) else "DIFFERENT"
        print(f"{table}: {len(rows):,} rows, {verdict}")


address = urlsplit(os.environ["SHOP_MYSQL_URL"])
connection = pymysql.connect(
    host=address.hostname or "localhost",
    port=address.port or 3306,
    user=unquote(address.username or "root"),
    password=unquote(address.password or ""),
    autocommit=True,
)
with connection, connection.cursor() as database:
    match sys.argv[1]:
        case "create":
            for statement in CREATE:
                database.execute(statement)
            fill(database)
        case "change":
            for statement in ("USE headwater_shop", *CHANGE):
                database.execute(statement)
        case "compare":
            database.execute("USE headwater_shop")
            compare(database)
        case "drop":
            database.execute("DROP DATABASE headwater_shop")
