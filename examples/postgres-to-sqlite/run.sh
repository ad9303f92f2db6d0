#!/usr/bin/env bash
# Copies a database, changes it, and copies only what has changed.
set -euo pipefail
cd "$(dirname "$0")"
: "${SHOP_PG_URL:?set it to the address of a PostgreSQL with wal_level=logical}"

python shop.py create
headwater run --once
python shop.py compare

python shop.py change
headwater run --once
python shop.py compare

headwater drop shop --yes
python shop.py drop
