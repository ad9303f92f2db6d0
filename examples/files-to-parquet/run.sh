#!/usr/bin/env bash
# Delivers the files, lets one of them grow, and delivers what is new.
set -euo pipefail
cd "$(dirname "$0")"

count() {
    python - <<'PROGRAM'
import pyarrow.dataset as ds

table = ds.dataset("lake/orders").to_table().sort_by("id")
for row in table.select(["id", "total", "day", "email"]).to_pylist():
    print(row["id"], row["total"], row["day"], row["email"][:8] + "...")
PROGRAM
}

headwater run --once
echo "after the first run:"
count

echo "4,ivory@shop.example,41.00,2026-02-01 12:30:00" >>orders/2026-02.csv
headwater run --once
echo "after one more line:"
count
