#!/usr/bin/env bash
# Prints the directory of the jars with which Spark itself reads Kafka and writes Delta tables.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/setup.sh
scripts/java.sh

version=${SPARK_JARS_VERSION:-4.1.3}
jars=$cache/spark-jars-$version
if [ ! -d "$jars" ]; then
    command -v mvn >/dev/null || install_packages maven "Maven"
    say "downloading the jars of Spark $version from Maven Central (60 MB, once, into $cache)"
    partial=$(mktemp -d "$cache/.partial.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    mvn -q -B -f scripts/spark-pom.xml -Dspark.version="$version" \
        dependency:copy-dependencies -DoutputDirectory="$partial/jars" \
        </dev/null >"$partial/log" 2>&1 || {
        tail -n 5 "$partial/log" >&2
        stop "the jars of Spark $version cannot be had from Maven Central" \
            "mvn needs repo.maven.apache.org, or a mirror in ~/.m2/settings.xml"
    }
    mv "$partial/jars" "$jars"
fi
echo "$jars"
