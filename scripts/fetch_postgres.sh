#!/usr/bin/env bash
# Prints the directory of PostgreSQL's programs, of the major version named (14 to 18): the
# system's own where it has that one, else built ones from Maven Central.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

declare -A releases=([14]=14.23.0 [15]=15.18.0 [16]=16.14.0 [17]=17.10.0 [18]=18.4.0)
version=${releases[${1:-}]:-}
[ -n "$version" ] || stop "no such version of PostgreSQL" "scripts/fetch_postgres.sh 14|15|16|17|18"
system=/usr/lib/postgresql/$1/bin
if [ -x "$system/postgres" ]; then
    echo "$system"
    exit
fi
case $(uname -m) in
x86_64) machine=amd64 ;;
aarch64) machine=arm64v8 ;;
*) stop "nobody builds PostgreSQL for $(uname -m) there" "install PostgreSQL $1 by hand" ;;
esac
scripts/java.sh

artifact=embedded-postgres-binaries-linux-$machine

# Of root's a server is run as nobody, who may not look into root's home.
if [ "$(id -u)" = 0 ] && [ -z "${HEADWATER_CACHE:-}" ]; then
    cache=/var/cache/headwater
    mkdir -p -m 755 "$cache"
fi

fill() {
    maven dependency:copy -DoutputDirectory="$1" \
        -Dartifact="io.zonky.test.postgres:$artifact:$version" &&
        mkdir -m 755 "$1/content" &&
        (cd "$1" && jar -xf ./*.jar) &&
        tar --no-same-owner -xJf "$1"/postgres-*.txz -C "$1/content"
}

place=$(fetched "postgres-$version" "PostgreSQL $version (15 MB)" "$maven_hint")
echo "$place/bin"
