#!/usr/bin/env bash
# Prints the directory of Apache Kafka's own jars (broker and tools), fetched from Maven Central.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/java.sh

version=${KAFKA_VERSION:-4.3.1}

fill() {
    maven -f scripts/kafka-pom.xml -Dkafka.version="$version" \
        dependency:copy-dependencies -DoutputDirectory="$1/content"
}

fetched "kafka-$version" "Apache Kafka $version from Maven Central (100 MB)" "$maven_hint"
