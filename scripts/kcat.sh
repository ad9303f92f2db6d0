#!/usr/bin/env bash
# Sees to it that kcat can be called.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
command -v kcat >/dev/null || install_packages kcat "kcat"
