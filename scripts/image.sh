#!/usr/bin/env bash
# Builds the image of deploy/container with buildah, without a daemon and without a registry, and tries it.
# Where docker.io cannot be reached, `scripts/image.sh debian` makes a base of Debian's packages first.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

base=docker.io/library/python:3.11-slim-bookworm
command -v buildah >/dev/null || install_packages "buildah fuse-overlayfs" "buildah"
[ -f "$(ls dist/*.whl 2>/dev/null | head -n 1)" ] || stop "dist/ holds no wheel" "make release"
export BUILDAH_ISOLATION=chroot

if [ "${1:-}" = debian ]; then
    command -v debootstrap >/dev/null || install_packages debootstrap "debootstrap"
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    say "making a base image of Debian's packages"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root/system" >/dev/null
    ln -s /usr/bin/python3 "$root/system/usr/local/bin/python"
    cp /etc/ssl/certs/ca-certificates.crt "$root/system/etc/ssl/certs/"
    [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/system/etc/"
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$root/system" / >/dev/null
    buildah commit --quiet --rm "$container" "$base" >/dev/null
fi
buildah build --pull="$([ "${1:-}" = debian ] && echo never || echo missing)" --format docker \
    --file deploy/container/Containerfile --tag headwater .
container=$(buildah from --pull=never headwater)
buildah run "$container" -- headwater version
buildah run "$container" -- sh -c 'test "$(id -u)" = 10001 && ! touch /file 2>/dev/null'
buildah rm "$container" >/dev/null
say "the image headwater is built and runs as user 10001"
