#!/usr/bin/env bash
# Prints the directory of the jars with which Spark itself reads Kafka, Delta and Iceberg.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/setup.sh
scripts/java.sh

version=${SPARK_JARS_VERSION:-4.1.3}

fill() {
    maven -f scripts/spark-pom.xml -Dspark.version="$version" \
        dependency:copy-dependencies -DoutputDirectory="$1/content"
}

fetched "spark-lake-jars-$version" "the jars of Spark $version from Maven Central (120 MB)" "$maven_hint"
