#!/usr/bin/env bash
# Prints the directory of Apache Kafka's own jars (broker and tools), fetched from Maven Central.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/java.sh

version=${KAFKA_VERSION:-4.3.1}
jars=$cache/kafka-$version
if [ ! -d "$jars" ]; then
    command -v mvn >/dev/null || install_packages maven "Maven"
    say "downloading Apache Kafka $version from Maven Central (100 MB, once, into $cache)"
    partial=$(mktemp -d "$cache/.partial.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    mvn -q -B -f scripts/kafka-pom.xml -Dkafka.version="$version" \
        dependency:copy-dependencies -DoutputDirectory="$partial/jars" \
        </dev/null >"$partial/log" 2>&1 || {
        tail -n 5 "$partial/log" >&2
        stop "Apache Kafka $version cannot be had from Maven Central" \
            "mvn needs repo.maven.apache.org, or a mirror in ~/.m2/settings.xml"
    }
    mv "$partial/jars" "$jars"
fi
echo "$jars"
