#!/usr/bin/env bash
# Prints the Python of an environment with the newest PySpark, and all else from our own.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/setup.sh
scripts/java.sh

place=$cache/newest-pyspark
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
[ -x "$place/bin/python" ] || .venv/bin/python -m venv "$place" >&2
say "looking for the newest PySpark (450 MB, once, into $place)"
"$place/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --upgrade pyspark >&2 ||
    stop "PySpark cannot be installed" "pip install pyspark must work"
ours=$(.venv/bin/python -c "$purelib")
echo "import site; site.addsitedir('$ours')" >"$("$place/bin/python" -c "$purelib")/ours.pth"
echo "$place/bin/python"
