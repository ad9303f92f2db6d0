#!/usr/bin/env bash
# Copies a database, changes it, and copies only what has changed.
set -euo pipefail
cd "$(dirname "$0")"
: "${SHOP_MYSQL_URL:?set it to the address of a MySQL or MariaDB with a binary log}"

python shop.py create
headwater doctor
headwater run --once
python shop.py compare

python shop.py change
headwater run --once
python shop.py compare
headwater verify shop

python shop.py drop
