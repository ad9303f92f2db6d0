#!/usr/bin/env bash
# Prints the directory of Prometheus' programs: those of the system, or Debian's package unpacked.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    dirname "$(command -v prometheus)"
    exit
fi

fill() {
    cd "$1"
    apt-get download -qq prometheus || {
        apt-get update -qq >/dev/null 2>&1 || true
        apt-get download -qq prometheus
    }
    dpkg -x prometheus_*.deb content
}

echo "$(fetched prometheus "Prometheus from Debian's package (19 MB)" "apt-get install prometheus")/usr/bin"
