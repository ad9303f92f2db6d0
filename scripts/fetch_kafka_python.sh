#!/usr/bin/env bash
# Prints the directory of kafka-python's source release, whose own integration tests we pass.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/setup.sh

version=3.0.12

fill() {
    from_pypi "$1" --no-binary :all: "kafka-python==$version" &&
        tar -xzf "$1"/kafka_python-*.tar.gz -C "$1" &&
        mv "$1"/kafka_python-*/ "$1/content"
}

fetched "kafka-python-$version" "kafka-python's own tests" "pip download kafka-python must work"
