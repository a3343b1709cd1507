#!/usr/bin/env bash
# Runs the benchmarks and prints one JSON object a line; a copy of each goes to bench-results.jsonl.
#   scripts/bench.sh [PREFIX]      ROUNDS=n RECORDS=n REPRIEVE_TEST_KAFKA=host:port
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
${GO:-go} build -o bin/reprieve ./cmd/reprieve
${GO:-go} build -o bin/bench ./tests/bench
exec bin/bench ${1:+"$1"}
