#!/usr/bin/env bash
# Makes .venv with everything the project and its tests need; does nothing when that is done already.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

stamp=.venv/.headwater-installed
wanted=$(sha256sum pyproject.toml constraints.txt scripts/setup.sh | sha256sum | cut -d' ' -f1)

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.11 python3.12 python3.13 python3.14; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

make_venv() {
    local python version
    python=$(find_python)
    if [ -z "$python" ]; then
        install_packages python3 "Python 3.11 or newer"
        python=$(find_python)
        [ -n "$python" ] || stop "this system has no Python 3.11 or newer" \
            "install one, and name it: PYTHON=/path/to/python3.12 make venv"
    fi
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    # Debian splits venv and pip off Python itself.
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        install_packages "python$version-venv" "Python's venv module"
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
}

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    make_venv
fi
say "installing Headwater and its development tools into .venv"
PIP_CACHE_DIR=${PIP_CACHE_DIR:-$cache/pip} .venv/bin/python -m pip install \
    --quiet --disable-pip-version-check --no-input --constraint constraints.txt --editable '.[dev]'
echo "$wanted" >"$stamp"
