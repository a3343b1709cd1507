#!/usr/bin/env bash
# Judges the example plugins, which must conform, and five that are wrong on purpose, which must not: each for its own reason.
set -euo pipefail
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
reprieve=$PWD/bin/reprieve
failed=0

CGO_ENABLED=0 ${GO:-go} build -trimpath -ldflags='-s -w -buildid=' -o examples/plugin-go/normalize-currency ./examples/plugin-go
"$reprieve" conform examples/plugin-go || failed=1
if command -v python3 >/dev/null; then
	"$reprieve" plugin pack examples/plugin-python
	"$reprieve" conform examples/plugin-python || failed=1
else
	echo "examples/plugin-python: skipped, there is no python3"
fi

CGO_ENABLED=0 ${GO:-go} build -o "$tmp/hostile" ./tests/conformance/plugin/hostile
wrong() { # NAME PROGRAM VECTOR WHAT-IS-TOLD
	local dir=$tmp/$1
	mkdir "$dir"
	cp "$tmp/hostile" "$dir/$2"
	cat >"$dir/plugin.yaml" <<-YAML
		apiVersion: reprieve/v1
		name: acme/hostile
		version: 1.0.0
		doc: Wrong on purpose.
		delivers: [transform, stage]
		artifacts: [{os: linux, arch: $(${GO:-go} env GOARCH), path: $2}]
		vectors: [{name: v, value: '$3', expect: fixed}]
	YAML
	local code=0
	"$reprieve" conform "$dir" --start 2s --timeout 2s >"$dir/report" || code=$?
	if [ $code = 4 ] && grep -q "$4" "$dir/report"; then
		echo "wrong on purpose, $1: found"
		grep -A1 '^ *[0-9]*  fail' "$dir/report" | sed 's/^/    /'
	else
		echo "wrong on purpose, $1: NOT FOUND (exit code $code)"
		cat "$dir/report"
		failed=1
	fi
}
wrong "differs by run" hostile random "gives another answer"
wrong "loses a result" hostile "lie: count" "results for"
wrong "dies on a record" hostile exit "fail  gives the same answers"
wrong "never answers" hostile hang "fail  gives the same answers"
wrong "prints before it serves" junk-first same "before the handshake"
exit $failed
