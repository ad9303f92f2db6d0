#!/usr/bin/env bash
# Prints the directory of kafka-python's source release, whose own integration tests we pass.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/setup.sh

version=3.0.12
sources=$cache/kafka-python-$version
if [ ! -d "$sources" ]; then
    say "downloading kafka-python's own tests (once, into $cache)"
    partial=$(mktemp -d "$cache/.partial.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir \
        --no-binary :all: --dest "$partial" "kafka-python==$version" ||
        stop "kafka-python's sources cannot be downloaded" "pip download kafka-python must work"
    tar -xzf "$partial"/kafka_python-*.tar.gz -C "$partial"
    mv "$partial"/kafka_python-*/ "$sources"
fi
echo "$sources"
