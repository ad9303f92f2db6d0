"""A small shop in PostgreSQL: made, changed, compared with its copy, and taken down."""

import os
import sqlite3
import sys

import psycopg

CREATE = """
DROP SCHEMA IF EXISTS shop CASCADE;
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id int PRIMARY KEY, name text NOT NULL, photo text);
CREATE TABLE shop.orders (
    id bigint PRIMARY KEY, customer int NOT NULL, total numeric(10, 2), status text);
INSERT INTO shop.customers SELECT i, 'customer ' || i, repeat(md5(i::text), 200)
    FROM generate_series(1, 500) i;
INSERT INTO shop.orders SELECT i, 1 + i % 500, i * 1.25, 'new' FROM generate_series(1, 20000) i;
"""
CHANGE = """
UPDATE shop.orders SET status = 'shipped' WHERE id % 4 = 0;
DELETE FROM shop.orders WHERE id % 100 = 0;
UPDATE shop.customers SET name = upper(name) WHERE id <= 50;
UPDATE shop.customers SET id = id + 1000 WHERE id > 490;
ALTER TABLE shop.orders ADD note text;
INSERT INTO shop.orders VALUES (100001, 1, 9.99, 'new', 'the first with a note');
"""
QUESTIONS = {
    "customers": "SELECT id, name, photo FROM {} ORDER BY id",
    "orders": "SELECT id, customer, CAST(total * 100 AS integer), status FROM {} ORDER BY id",
}


def compare(source: psycopg.Connection) -> None:
    copy = sqlite3.connect("shop.db")
    for table, question in QUESTIONS.items():
        rows = source.execute(question.format(f"shop.{table}").encode()).fetchall()
        is_equal = rows == copy.execute(question.format(table)).fetchall()
        print(f"{table}: {len(rows):,} rows, {'equal' if is_equal else 'DIFFERENT'}")


with psycopg.connect(os.environ["SHOP_PG_URL"], autocommit=True) as database:
    match sys.argv[1]:
        case "create":
            database.execute(CREATE.encode())
        case "change":
            database.execute(CHANGE.encode())
        case "compare":
            compare(database)
        case "drop":
            database.execute(b"DROP SCHEMA shop CASCADE")
