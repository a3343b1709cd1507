#!/usr/bin/env bash
# Runs the layers of tests and prints one line each: ran, failed, or skipped and why.
#   scripts/test.sh all | fast | chaos
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
export GOFLAGS="${GOFLAGS:-} -count=1"
tmp=$(mktemp -d)
services_pid=
beside_pid=
summary=()
failed=0
started=$SECONDS

cleanup() {
	[ -z "$beside_pid" ] || kill "$beside_pid" 2>/dev/null
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
# beside starts a layer that mostly waits; the layers after it run meanwhile, until joined prints what it said.
beside() { # NAME COMMAND...
	beside_name=$1 beside_from=$SECONDS
	shift
	"$@" >"$tmp/beside" 2>&1 &
	beside_pid=$!
}
joined() {
	[ -n "$beside_pid" ] || return 0
	local state=ran
	wait "$beside_pid" || state=FAILED failed=1
	beside_pid=
	echo "=== $beside_name"
	cat "$tmp/beside"
	summary+=("$beside_name: $state (beside others, after $((SECONDS - beside_from)) s)")
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
	while ! grep -q '^ready' "$tmp/env"; do
		if ! kill -0 "$services_pid" 2>/dev/null; then
			cat "$tmp/services.log" >&2
			summary+=("services: FAILED, see above")
			failed=1
			return
		fi
		if [ $((SECONDS - started)) -gt 1200 ]; then
			cat "$tmp/services.log" >&2
			summary+=("services: FAILED, not ready after 20 minutes")
			failed=1
			return
		fi
		sleep 0.2
	done
	cat "$tmp/services.log" >&2
	grep '^export ' "$tmp/env" >"$tmp/exports"
	# shellcheck disable=SC1091
	. "$tmp/exports"
	local names
	names=$(sed -n 's/^export REPRIEVE_TEST_\([A-Z]*\)=.*/\1/p' "$tmp/env" | tr '\n' ' ' | tr '[:upper:]' '[:lower:]')
	summary+=("services: started: $names")
}

report() {
	echo
	echo "layers ($((SECONDS - started)) s):"
	printf '  %s\n' "${summary[@]}"
	exit $failed
}

# core needs no server.
core() { go list ./... | grep -v -E '/tests/(integration|chaos|drill|bench|services|docs)|/pipeline/kafka$|/custody|/ledger|/redrive$|/embedded$|/plugins|/tests/conformance/plugin|/pipeline/control$|/examples/plugin-'; }

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
	start_services kafka postgres
	layer "build" go build ./...
	use_services
	export ITEMS=${ITEMS:-200000}
	layer "crash" go test -timeout 90m -v -run Chaos ./tests/chaos
	report
	;;
all)
	start_services kafka postgres registry
	layer "build" go build ./...
	layer "vet" go vet ./...
	layer "architecture" go test ./tests
	# shellcheck disable=SC2046
	layer "core (race)" go test -race -timeout 20m $(core | grep -v '/tests$')
	use_services
	layer "ledger (SQLite, PostgreSQL; race)" go test -race -timeout 10m ./ledger/... ./custody/... ./redrive
	beside "plugins" go test -timeout 15m ./plugins/... ./tests/conformance/plugin ./examples/plugin-go ./examples/plugin-python
	layer "kafka (embedded, Apache Kafka; race)" go test -race -timeout 15m ./pipeline/kafka ./pipeline/control ./embedded ./tests/services/...
	joined
	layer "stories (journeys, demo, adoption)" go test -timeout 20m ./tests/integration
	QUICK=1 DRILL_TIMES=printed DRILL_AUDIT="$tmp/drill-audit.json" beside "stories (recovery drill, quick)" scripts/drills/run_dlq_end_to_end_recovery_drill.sh
	layer "stories (every command of the docs)" go test -timeout 10m ./tests/docs/...
	layer "stories (a redrive of 20,000 payments)" go test -timeout 10m -run TwoOperators ./redrive
	joined
	ROUNDS=${ROUNDS:-8} layer "crash (kill -9 and cut connections, both deliveries)" go test -timeout 15m -run Chaos ./tests/chaos
	skip "pages in Chromium" "this version has no pages"
	skip "containers" "this version has no image"
	report
	;;
*)
	echo "usage: scripts/test.sh all | fast | chaos" >&2
	exit 2
	;;
esac
