# Sourced by the other scripts: one voice, one cache, and system packages when we may install them.

cache=${HEADWATER_CACHE:-$HOME/.cache/headwater}
mkdir -p "$cache"

say() {
    echo "headwater: $*" >&2
}

stop() {
    say "$1"
    say "  hint: $2"
    exit 3
}

# install_packages "PACKAGE..." WHAT: by apt when root, else says what to type.
install_packages() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        stop "$2 is missing" "sudo apt-get install $1"
    fi
    say "installing $2: apt-get install $1"
    local packages
    read -ra packages <<<"$1"
    apt_install "${packages[@]}" || {
        DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >/dev/null 2>&1 || true
        apt_install "${packages[@]}"
    } || stop "apt-get could not install $1" "install $2 by hand"
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
        </dev/null >/dev/null 2>&1
}

# fetched NAME WHAT HINT: prints the directory NAME of the cache. Where it is not there yet, the
# caller's `fill DIRECTORY` puts it together first, as DIRECTORY/content; several at once may.
fetched() {
    local place=$cache/$1
    if [ ! -d "$place" ]; then
        say "downloading $2, once, into $cache"
        partial=$(mktemp -d "$cache/.partial.XXXXXX")
        trap 'rm -rf "$partial"' EXIT
        fill "$partial" </dev/null >"$partial/log" || {
            tail -n 5 "$partial/log" >&2
            stop "$2 cannot be had" "$3"
        }
        mv -T "$partial/content" "$place" 2>/dev/null || [ -d "$place" ]
    fi
    echo "$place"
}

maven_hint="mvn needs repo.maven.apache.org, or a mirror in ~/.m2/settings.xml"

maven() {
    command -v mvn >/dev/null || install_packages maven "Maven"
    mvn -q -B -Dstyle.color=never "$@"
}

# go_module DIRECTORY PACKAGE@VERSION...: a module with these packages and what their tests need.
go_module() {
    command -v go >/dev/null || stop "Go is missing" "install Go 1.26 or newer"
    mkdir "$1" && cd "$1" && go mod init headwater.test/fetched && go get -t "${@:2}"
}

# from_pypi DIRECTORY WHAT...: a file of a release, without what it depends on.
from_pypi() {
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir \
        --dest "$@"
}
