#!/usr/bin/env bash
# Prints the directory of `kgo.test`: franz-go's own tests, compiled from its release.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

version=1.22.2
package=github.com/twmb/franz-go/pkg/kgo

fill() {
    command -v go >/dev/null || stop "Go is missing" "install Go 1.26 or newer: franz-go asks for it"
    mkdir "$1/content" && cd "$1/content" && go mod init headwater.test/franz-go &&
        go get "$package@v$version" && go test -c -o kgo.test "$package"
}

fetched "franz-go-$version" "franz-go's own tests" "go get $package@v$version must work"
