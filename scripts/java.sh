#!/usr/bin/env bash
# Sees to it that Java 17 or newer can be called, its compiler too: tests bring Java sources.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

java_version() {
    java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

if ! command -v javac >/dev/null || [ "$(java_version)" -lt 17 ]; then
    if apt-cache show openjdk-17-jdk-headless >/dev/null 2>&1; then
        install_packages openjdk-17-jdk-headless "Java 17"
    else
        install_packages default-jdk-headless "Java"
    fi
fi
[ "$(java_version)" -ge 17 ] || stop "Java is older than 17" "sudo apt-get install openjdk-17-jdk-headless"
