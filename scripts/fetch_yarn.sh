#!/usr/bin/env bash
# Prints the directory of the jars of Hadoop's own mini cluster, on which Spark is tried with YARN.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/java.sh

version=3.4.2

fill() {
    maven -f scripts/yarn-pom.xml -Dhadoop.version="$version" \
        dependency:copy-dependencies -DoutputDirectory="$1/content"
}

fetched "hadoop-minicluster-$version" "Hadoop $version's mini cluster from Maven Central (100 MB)" "$maven_hint"
