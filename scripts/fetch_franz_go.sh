#!/usr/bin/env bash
# Prints the directory of `kgo.test`: franz-go's own tests, compiled from its release.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

version=1.22.2
package=github.com/twmb/franz-go/pkg/kgo

fill() {
    go_module "$1/content" "$package@v$version" && go test -c -o kgo.test "$package"
}

fetched "franz-go-$version" "franz-go's own tests" "go get $package@v$version must work"
