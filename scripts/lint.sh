#!/usr/bin/env bash
# Formatting, vet, staticcheck and a tidy go.mod: any finding fails.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$bad" ]; then
	echo "not formatted: $bad" >&2
	exit 1
fi
go vet ./...
go tool staticcheck ./...
go mod tidy -diff
echo "lint: clean"
