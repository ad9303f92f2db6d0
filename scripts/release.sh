#!/usr/bin/env bash
# Builds wheel and source distribution of the version in pyproject.toml into dist/, and tries the wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
grep -q "^## \[$version\]" CHANGELOG.md ||
    stop "CHANGELOG.md has no section [$version]" "write the version's date: ## [$version] - $(date -u +%F)"
ls tests/golden/kept/*-"$version".tar.gz >/dev/null 2>&1 ||
    stop "no directory of $version is kept for upgrade tests" ".venv/bin/python -m scripts.keep_release $version"
[ -z "$(git status --porcelain)" ] || stop "the working tree has changes" "git commit"

rm -rf dist
.venv/bin/python -m hatchling build -d dist >/dev/null
partial=$(mktemp -d)
trap 'rm -rf "$partial"' EXIT
.venv/bin/python -m venv "$partial/venv"
"$partial/venv/bin/pip" install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
"$partial/venv/bin/headwater" version
(cd dist && sha256sum ./* >SHA256SUMS)
say "dist/ holds $version: $(cd dist && echo *)"
