#!/usr/bin/env bash
# The recovery drill MC-RT-01: an outage of the payment gateway under load, its redrive, and the proof by counting. Prints an audit
# log, writes drill-audit.json, and exits with 0 only if everything holds.
#   QUICK=1                        an outage of 10 s instead of 60 s
#   SHARE=1.0                      every invoice calls the gateway, instead of one in twenty (one scenario, 36 minutes)
#   BREAK=double-debit|drop-one    the gateway does one wrong thing: the drill must fail and redrives must halt
#   DRILL_SCENARIOS=a,b            only some of: idempotent, ambiguous, pause
#   DRILL_TIMES=printed            times are printed but not judged, on a machine that does other things as well (make test)
set -euo pipefail
cd "$(dirname "$0")/../.."
export DRILL=full DRILL_AUDIT="${DRILL_AUDIT:-$PWD/drill-audit.json}"
[ -z "${QUICK:-}" ] || DRILL=quick
rm -f "$DRILL_AUDIT"
exec "${GO:-go}" test -count=1 -timeout 90m -run '^TestDrill$' -v ./tests/drill
