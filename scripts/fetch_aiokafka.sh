#!/usr/bin/env bash
# Prints the directory of aiokafka's sources, whose own tests we pass; its releases leave them out.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
command -v git >/dev/null || install_packages git "git"

version=0.14.0

fill() {
    git clone --quiet --depth 1 --branch "v$version" https://github.com/aio-libs/aiokafka "$1/content"
}

fetched "aiokafka-$version" "aiokafka's own tests" \
    "git clone https://github.com/aio-libs/aiokafka must work, or HEADWATER_AIOKAFKA names a checkout of v$version"
