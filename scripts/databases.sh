#!/usr/bin/env bash
# Sees to it that PostgreSQL and MariaDB can be started by the tests; starts neither.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

has_postgres() {
    command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null
}

has_mariadb() {
    command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]
}

# A package starts its service when it is installed, which nobody here asked for.
install_quietly() {
    local policy=/usr/sbin/policy-rc.d
    if [ "$(id -u)" = 0 ] && [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' RETURN
    fi
    install_packages "$@"
}

has_postgres || install_quietly postgresql "PostgreSQL"
has_mariadb || install_quietly mariadb-server "MariaDB"
