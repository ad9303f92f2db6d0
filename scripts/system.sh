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
