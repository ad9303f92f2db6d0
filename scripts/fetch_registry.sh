#!/usr/bin/env bash
# Prints the directory of Apicurio Registry, a schema registry that answers as Confluent's does.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/java.sh

version=3.0.9 # the last that asks for no more than Java 17

fill() {
    maven dependency:copy -DoutputDirectory="$1" \
        -Dartifact="io.apicurio:apicurio-registry-app:$version:tar.gz:all" &&
        mkdir "$1/content" &&
        tar --no-same-owner -xzf "$1"/apicurio-registry-app-*.tar.gz -C "$1/content"
}

fetched "apicurio-registry-$version" "Apicurio Registry $version (110 MB)" "$maven_hint"
