#!/usr/bin/env bash
# Prints the directory of helm, compiled from its Go module.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

version=v3.22.0

fill() {
    command -v go >/dev/null || install_packages golang-go "Go"
    mkdir "$1/content"
    GOBIN="$1/content" go install "helm.sh/helm/v3/cmd/helm@$version"
}

fetched "helm-$version" "helm $version, and compiling it (takes minutes)" \
    "go install helm.sh/helm/v3/cmd/helm@$version must work"
