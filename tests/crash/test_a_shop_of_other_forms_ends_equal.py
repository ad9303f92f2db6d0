"""Statements of docs/schema-changes.md on the demo's database, while `headwater run` follows it,
need nothing else: `headwater verify` says equal."""

import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from scripts.embedded_postgres import embedded_postgres
from scripts.shop_database import PostgresShop, buying
from tests.crash.command_process import CommandProcess

PATIENCE_S, LOOK_S = 600, 1.0
PIPELINE = """
pipeline: shop
source: {{type: postgres, url: '{url}', tables: [public.*]}}
sink:
- {{name: lake, type: spark, path: ./lake, commit_every: 1s}}
- {{name: kept, type: sql, url: 'sqlite:///kept.db', deletes: soft}}
"""
MORE_TABLES = (
    "CREATE TYPE mood AS ENUM ('sad', 'fine')",
    "CREATE TABLE visits (id int, at date, mood mood DEFAULT 'fine', PRIMARY KEY (id, at))"
    " PARTITION BY RANGE (at)",
    "CREATE TABLE visits_1 PARTITION OF visits FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
    "CREATE TABLE visits_2 PARTITION OF visits FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
    "INSERT INTO visits SELECT i, '2025-06-01'::date + i, 'fine' FROM generate_series(1, 400) i",
    "CREATE TABLE visits_3 (id int, at date, mood mood DEFAULT 'sad', PRIMARY KEY (id, at))",
    "INSERT INTO visits_3 SELECT i, '2027-02-01'::date, 'sad' FROM generate_series(1, 50) i",
)
FORMS = (
    "ALTER TABLE customers ADD phone text",
    "ALTER TABLE customers ADD points int NOT NULL DEFAULT 7",
    "ALTER TABLE customers ADD seen_at timestamptz DEFAULT now()",
    "ALTER TABLE customers ADD lot int DEFAULT (random() * 1000)::int",
    "ALTER TABLE customers ADD number serial",
    "ALTER TABLE customers ADD twice int GENERATED ALWAYS AS (lot * 2) STORED",
    "UPDATE customers SET phone = 'none' WHERE id % 3 = 0",
    "ALTER TABLE customers ALTER name TYPE text USING upper(name)",
    "ALTER TABLE customers RENAME email TO mail",
    "ALTER TABLE customers DROP city",
    "ALTER TABLE customers ADD city text",
    "DELETE FROM customers WHERE id % 100 = 7",
    "ALTER TABLE customers ALTER points TYPE text USING 'p' || points",
    "ALTER TABLE orders RENAME note TO remark",
    "ALTER TABLE orders ADD channel text DEFAULT 'web'",
    "ALTER TABLE orders ALTER total TYPE numeric(14, 2)",
    "ALTER TABLE orders ALTER status TYPE varchar(20)",
    "ALTER TABLE orders ALTER customer_id TYPE int",
    "ALTER TABLE orders ALTER placed_at DROP NOT NULL",
    "ALTER TABLE order_lines ALTER quantity TYPE bigint",
    "ALTER TABLE order_lines ALTER article TYPE varchar(40) USING left(article, 40)",
    "VACUUM FULL order_lines",
    "ALTER TABLE visits ATTACH PARTITION visits_3 FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')",
    "ALTER TABLE visits DETACH PARTITION visits_1",
    "DROP TABLE visits_1",
    "ALTER TYPE mood RENAME VALUE 'fine' TO 'good'",
    "ALTER TYPE mood ADD VALUE 'great'",
    "INSERT INTO visits VALUES (1000, '2026-03-03', 'great')",
)
KEYS = (
    "ALTER TABLE order_lines DROP CONSTRAINT order_lines_pkey, ADD PRIMARY KEY (line, order_id)",
    "ALTER TABLE customers RENAME id TO number_of_customer",
    "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, customer_id)",
    "ALTER TABLE visits ALTER id TYPE bigint",
    "ALTER TABLE visits DROP CONSTRAINT visits_pkey, ADD PRIMARY KEY (at, id)",
)


@pytest.mark.long("crash")
def test_statements_of_the_page_need_nothing_else(tmp_path: Path) -> None:
    with embedded_postgres() as server:
        shop = PostgresShop(server.address)
        shop.make_shop(customers=1_000, orders=3_000)
        execute(server.address, MORE_TABLES)
        (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(url=server.address))
        runner = command(tmp_path, "run")
        with buying(shop):
            runner.start()
            try:
                until_equal(tmp_path, runner)
                for statements in (FORMS, KEYS):
                    execute(server.address, statements)
                    until_equal(tmp_path, runner)
            finally:
                runner.end()


def command(directory: Path, *arguments: str) -> CommandProcess:
    output = directory / f"{arguments[0]}.log"
    return CommandProcess(arguments, directory=directory, output=output)


def execute(address: str, statements: Sequence[str]) -> None:
    """Each waits for its lock as long as it likes."""
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def until_equal(directory: Path, runner: CommandProcess) -> None:
    """`verify` says of a table that is being read again that it is, and fails."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        time.sleep(LOOK_S)
        assert runner.poll() is None, runner.last_words()
        verify = command(directory, "verify", "shop")
        verify.start()
        if verify.wait() == 0:
            return
        assert time.monotonic() < deadline, verify.last_words()
