#!/usr/bin/env bash
# A second broker stands for somebody else's cluster: rows go there, and come back into SQLite.
set -euo pipefail
cd "$(dirname "$0")"

headwater broker --quiet --data ./outside --listen 127.0.0.1:0 &
broker=$!
trap 'kill $broker; wait $broker || true' EXIT
until [ -f outside/endpoint.json ]; do sleep 0.1; done
OUTSIDE=$(python -c 'import json; print(json.load(open("outside/endpoint.json"))["kafka"])')
export OUTSIDE

headwater run --once pipeline.yaml
headwater topics ls --bootstrap "$OUTSIDE"
headwater run --once back.yaml
python - <<'PROGRAM'
import sqlite3

database = sqlite3.connect("back.db")
for table in ("customers", "products", "orders", "order_lines"):
    count = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    print(f"{table}: {count:,} rows came back")
PROGRAM
