#!/usr/bin/env bash
# Runs the layers of tests and prints one line each: ran, failed, or skipped and why.
#   scripts/test.sh all | fast | chaos
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
export GOFLAGS="${GOFLAGS:-} -count=1"
tmp=$(mktemp -d)
services_pid=
summary=()
failed=0
started=$SECONDS

cleanup() {
	if [ -n "$services_pid" ]; then
		exec 7>&- # the services end when their standard input closes
		wait "$services_pid" 2>/dev/null
	fi
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

layer() { # NAME COMMAND...
	local name=$1 from=$SECONDS
	shift
	echo "=== $name"
	if "$@"; then
		summary+=("$name: ran ($((SECONDS - from)) s)")
	else
		summary+=("$name: FAILED ($((SECONDS - from)) s)")
		failed=1
	fi
}
skip() { summary+=("$1: skipped, $2"); }

# start_services asks for servers once, for all layers; they start while the build runs.
start_services() {
	mkfifo "$tmp/stdin"
	go run ./tests/services/cmd/services "$@" <"$tmp/stdin" >"$tmp/env" 2>"$tmp/services.log" &
	services_pid=$!
	exec 7>"$tmp/stdin"
}

# use_services waits for them and exports where they are.
use_services() {
	local i
	for i in $(seq 3000); do
		grep -q '^# ready' "$tmp/env" && break
		if ! kill -0 "$services_pid" 2>/dev/null; then
			cat "$tmp/services.log" >&2
			echo "the services did not start" >&2
			[ "${CI:-}" = true ] && failed=1
			break
		fi
		sleep 0.1
	done
	cat "$tmp/services.log" >&2
	set -a
	# shellcheck disable=SC1091
	. "$tmp/env"
	set +a
}

report() {
	echo
	echo "layers ($((SECONDS - started)) s):"
	printf '  %s\n' "${summary[@]}"
	exit $failed
}

core() { go list ./... | grep -v -E '/tests/(integration|chaos|bench|services)|/pipeline/kafka$|/custody/custodytest|/ledger/ledgertest'; }

case $what in
fast)
	layer "build" go build ./...
	layer "architecture" go test ./tests
	# shellcheck disable=SC2046
	layer "core" go test $(core | grep -v '/tests$')
	skip "kafka, ledger on PostgreSQL, crash, stories" "make test runs them"
	report
	;;
chaos)
	start_services kafka
	layer "build" go build ./...
	use_services
	layer "crash" go test -timeout 60m -v -run Chaos ./tests/chaos
	report
	;;
all)
	start_services kafka postgres
	layer "build" go build ./...
	layer "vet" go vet ./...
	layer "architecture" go test ./tests
	# shellcheck disable=SC2046
	layer "core (race)" go test -race -timeout 20m $(core | grep -v '/tests$')
	use_services
	layer "ledger (SQLite, PostgreSQL)" go test -race -timeout 10m ./ledger/... ./custody/...
	layer "kafka (embedded, real)" go test -race -timeout 10m ./pipeline/kafka/...
	layer "integration" go test -timeout 15m ./tests/integration/...
	ROUNDS=${ROUNDS:-8} layer "crash" go test -timeout 15m -run Chaos ./tests/chaos
	report
	;;
*)
	echo "usage: scripts/test.sh all | fast | chaos" >&2
	exit 2
	;;
esac
