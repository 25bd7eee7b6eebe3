#!/bin/sh
# Runs every fuzz target of the module in turn; the time for each is the argument.
set -eu

failed=
for file in $(grep -rl '^func Fuzz' --include='*_test.go' . | sort); do
    for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
        echo "==> $target ($(dirname "$file"))"
        go test -run='^$' -fuzz="^$target\$" -fuzztime="$1" "$(dirname "$file")" || failed="$failed $target"
    done
done
if [ -n "$failed" ]; then
    echo "fuzz: failed:$failed; the input is in testdata/fuzz" >&2
    exit 1
fi
