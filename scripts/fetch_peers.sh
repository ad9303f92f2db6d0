#!/usr/bin/env bash
# Prints the directory of the tools that benchmarks/peers.py compares with: an environment, and jars.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/setup.sh
scripts/java.sh

packages=(
    "dlt[deltalake]==1.31.0"
    sqlalchemy==2.0.44
    connectorx==0.4.6
    deltalake==1.6.6
    duckdb==1.5.5
    duckdb-extensions==1.5.5
    duckdb-extension-postgres-scanner==1.5.5
    psycopg2-binary==2.9.11
    pyarrow==22.0.0
    pyspark==4.1.2
)
driver=org.postgresql:postgresql:42.7.8
copy=org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy

fill() {
    .venv/bin/python -m venv "$1/content" &&
        "$1/content/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
            "${packages[@]}" >&2 &&
        maven "$copy" "-Dartifact=$driver" "-DoutputDirectory=$1/content/jars" &&
        cp "$(scripts/fetch_spark_jars.sh)"/delta-s*.jar "$1/content/jars"
}

fetched peers-1 "dlt, ConnectorX, DuckDB and PySpark from PyPI (900 MB)" "pip install dlt must work"
