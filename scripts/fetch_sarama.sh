#!/usr/bin/env bash
# Prints the directory of `sarama.test`, sarama's functional tests, and of the `toxiproxy` they need.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

version=1.61.1
toxiproxy_version=2.12.0
package=github.com/IBM/sarama
toxiproxy=github.com/Shopify/toxiproxy/v2/cmd/server

fill() {
    go_module "$1/content" "$package@v$version" "$toxiproxy@v$toxiproxy_version" &&
        go test -c -tags functional -o sarama.test "$package" && go build -o toxiproxy "$toxiproxy"
}

fetched "sarama-$version" "sarama's functional tests" "go get $package@v$version must work"
