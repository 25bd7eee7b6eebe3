#!/usr/bin/env bash
# What CI runs, called by `make ci`: the checks of the library and of a third of the modules around it, the tests of all,
# in one of three runs some of them with the lowest Go and go-redis, the demo, and a bounded slice of the proof: a
# forty-eighth part of the seeded bugs, a fifth of a simulated year of the decisions, and as much of thirty simulated days of
# the full stack as 25 s hold. The commit chooses the slices; the nightly run does all. All steps are run even after a
# failure. Fails if any failed.
#
# The tests wait a third of their time. Meanwhile, at the lowest priority, what comes after them is compiled, and lint runs.
# The simulator of decisions, which plays one year at a time, runs beside the steps that follow. What these two say is printed
# as a step of its own.
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

# begun JOB FILE ends as a job in the background does, which writes to a file.
begun() {
    local status=0
    wait "$1" || status=$?
    cat "$2"
    return $status
}
lint() { begun $linting "$findings"; } # was begun before the tests
sim() { begun $simulating "$years"; }  # was begun after them

go version
committed=$(git show -s --format=%ct HEAD 2>/dev/null || echo 0) # the second of the commit chooses the slices
modules=$(find . \( -name .git -o -name bin -o -name testdata -o -path ./tools/lint \) -prune -o -name go.mod -exec dirname {} \; | grep -v "^\.$" | sort)
linted=. # the library, and a third of the modules around it
number=0
for module in $modules; do
    number=$((number + 1))
    [ $((number % 3)) -ne $((committed % 3)) ] || linted="$linted $module"
done
findings=$(mktemp)
years=$(mktemp)
trap 'rm -f "$findings" "$years"' EXIT
(
    nice -n 19 make ahead MODULES="$(echo $modules)" >/dev/null 2>&1 # the step that needs it says what is wrong
    nice -n 19 make lint MODULES="$linted" >"$findings" 2>&1
) &
linting=$!
step make test
bounded 600 make sim YEARS=0.2 >"$years" 2>&1 &
simulating=$!
step lint
[ $((committed % 3)) -ne 0 ] || step make floor SHORT_FLAGS=-count=1 PACKAGES="./tenuretest ./examples/quickstart"
step make bugs PART="$((committed % 48 + 1))/48"
step sim
step bounded 400 make virtual DAYS=30 WALL=25s
step bounded 120 make demo FOR=20s

printf '\n### in all: %d s\n' "$SECONDS"
printf '    %s\n' "${summary[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    exit 1
fi
