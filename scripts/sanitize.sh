#!/usr/bin/env bash
# Runs the tests of the client of Kafka with the address sanitizer in C and in Go: use after release, double free, overflow,
# and what is still allocated at the end. It needs gcc or clang with libasan. Then once more with every pointer conversion
# checked, in all packages, under the race detector. Arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
tmp=$(mktemp -d)
trap 'rm -r "$tmp"' EXIT
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1}"
export LSAN_OPTIONS="${LSAN_OPTIONS:-suppressions=$PWD/scripts/sanitize.supp:print_suppressions=0}"
CGO_CFLAGS="-g -O1 -fsanitize=address" CGO_LDFLAGS="-fsanitize=address" "$go" test -asan -short -count=1 -timeout 20m \
	-o "$tmp/kafka.test" -skip TestEveryNameIsKnownToTheLibrary "$@" ./pipeline/kafka # with -o the names stay that suppressions are matched by; confluent-kafka-go does not free the settings that it refuses
unset ASAN_OPTIONS LSAN_OPTIONS
"$go" test -race -gcflags=all=-d=checkptr -short -count=1 -timeout 20m "$@" ./pipeline/kafka
