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
found=0
for about in tests/conformance/plugin/wrong/*/plugin.yaml; do
	name=$(basename "$(dirname "$about")")
	check=$(sed -n 's/^# check: //p' "$about")
	evidence=$(sed -n 's/^# evidence: //p' "$about")
	program=$(sed -n 's/^artifacts:.*path: \([a-z-]*\).*/\1/p' "$about")
	dir=$tmp/$name
	mkdir "$dir"
	cp "$about" "$dir"
	cp "$tmp/hostile" "$dir/$program"
	code=0
	"$reprieve" conform "$dir" --start 10s --timeout 2s >"$dir/report" || code=$?
	if [ $code = 4 ] && grep -A1 "^ *[0-9]*  fail  $check\$" "$dir/report" | grep -q "$evidence"; then
		echo "wrong on purpose, $name: found"
		grep -A1 '^ *[0-9]*  fail' "$dir/report" | sed 's/^/    /'
		found=$((found + 1))
	else
		echo "wrong on purpose, $name: NOT FOUND (exit code $code)"
		cat "$dir/report"
		failed=1
	fi
done
echo "$found of 5 that are wrong on purpose were found"
[ $found = 5 ] || failed=1
exit $failed
