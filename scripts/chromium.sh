#!/usr/bin/env bash
# Sees to it that a headless Chromium can be called, for tests of the console.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || install_packages chromium "Chromium"
