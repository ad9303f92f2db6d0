#!/usr/bin/env bash
# Prints the directory in which Node finds kafkajs, a client written in JavaScript.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
command -v node >/dev/null && command -v npm >/dev/null || install_packages "nodejs npm" "Node"

version=2.2.4

fill() {
    mkdir "$1/content" && npm install --silent --no-audit --no-fund --prefix "$1/content" "kafkajs@$version"
}

fetched "kafkajs-$version" "kafkajs" "npm install kafkajs must work"
