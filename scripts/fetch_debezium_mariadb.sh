#!/usr/bin/env bash
# Prints the directory of Debezium's MariaDB connector and its jars (from Maven Central).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
scripts/java.sh

version=3.5.0.Final
artifacts="io.debezium:debezium-connector-mariadb:$version io.debezium:debezium-embedded:$version"

fill() {
    local each
    {
        echo '<project><modelVersion>4.0.0</modelVersion><groupId>headwater</groupId>'
        echo '<artifactId>jars</artifactId><version>1</version><dependencies>'
        for each in $artifacts; do
            IFS=: read -r group artifact number <<<"$each"
            echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId>"
            echo "<version>$number</version></dependency>"
        done
        echo '</dependencies></project>'
    } >"$1/pom.xml"
    maven -f "$1/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$1/content"
}

fetched "debezium-mariadb-$version" "Debezium's MariaDB connector (80 MB)" "$maven_hint"
