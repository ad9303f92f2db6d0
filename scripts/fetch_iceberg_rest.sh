#!/usr/bin/env bash
# Prints the directory of the jars of Iceberg's own REST catalog server, a part of its tests.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/java.sh

fill() {
    maven -f scripts/iceberg-rest-pom.xml dependency:copy-dependencies \
        -DoutputDirectory="$1/content"
}

fetched "iceberg-rest-1.11.0" "Iceberg's REST catalog server (80 MB)" "$maven_hint"
