#!/usr/bin/env bash
# What CI runs, called by `make ci`: the checks, the tests, those of the lowest Go and go-redis, the demo, and a bounded slice of the proof: half of the
# seeded bugs, as the commit has it (the nightly run seeds all), a simulated year of the decisions, and as much of
# thirty simulated days of the full stack as 60 s hold. All steps are run even after a failure. Fails if any failed.
set -uo pipefail

exec </dev/null 2>&1

failed=()
summary=()

step() {
    local began=$SECONDS status=0
    printf '\n### %s\n' "$*"
    "$@" || status=$?
    local line
    line=$(printf '%-44s %4d s  %s' "$*" $((SECONDS - began)) "$([ $status -eq 0 ] && echo ok || echo "FAILED ($status)")")
    printf '### %s\n' "$line"
    summary+=("$line")
    [ $status -eq 0 ] || failed+=("$*")
}

# bounded SECONDS COMMAND... ends a command that should long have ended itself.
bounded() {
    if command -v timeout >/dev/null; then
        timeout -k 10 "$@"
    else
        "${@:2}"
    fi
}

go version
step make lint
step make test
step make floor SHORT_FLAGS=-count=1 PACKAGES="./tenuretest ./examples/quickstart"
step make floor SHORT_FLAGS="-short -count=1" RUN=TestVirtualReplay PACKAGES=./internal/proof/virtual # the race detector skips it
committed=$(git show -s --format=%ct HEAD 2>/dev/null || echo 0) # the second of the commit chooses
step make bugs PART="$((committed % 2 + 1))/2"
step bounded 400 make sim YEARS=1
step bounded 400 make virtual DAYS=30 WALL=60s
step bounded 120 make demo FOR=20s

printf '\n### in all: %d s\n' "$SECONDS"
printf '    %s\n' "${summary[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    exit 1
fi
