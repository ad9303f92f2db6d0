#!/usr/bin/env bash
# Runs the pipeline to the end of its history, and counts what has arrived.
set -euo pipefail
cd "$(dirname "$0")"

headwater run --once
python - <<'PROGRAM'
import sqlite3

database = sqlite3.connect("shop.db")
for table in ("customers", "products", "orders", "order_lines"):
    count = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    print(f"{table}: {count:,} rows")
query = "SELECT status, count(*), round(sum(total)) FROM orders GROUP BY status ORDER BY status"
for status, count, total in database.execute(query):
    print(f"{status}: {count} orders, {total:,.0f} in all")
PROGRAM
