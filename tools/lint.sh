#!/bin/sh
# Checks every module given as argument; called by `make lint`, which builds
# the tools into bin/. Runs everything before it fails.
set -u

root=$PWD
failed=

# check NAME COMMAND... runs a command in every module.
check() {
    name=$1
    shift
    for module in $modules; do
        echo "==> $name $module"
        (cd "$module" && "$@") || failed="$failed $name($module)"
    done
}

# report NAME TEXT fails when there is something to say.
report() {
    echo "==> $1"
    if [ -n "$2" ]; then
        printf '%s\n' "$2"
        failed="$failed $1"
    fi
}

modules=$*

report gofmt "$(gofmt -l .)"

# Only in a synctest bubble does time.Sleep cost no time and prove something: in those of bubble_test.go, too. A file that runs
# in a bubble of another one, or that looks again and again until a bound, says so: "virtual time", "bounded poll".
report sleeps "$(
    find . -name '*_test.go' -exec grep -l 'time\.Sleep(' {} + |
        xargs grep -LE 'testing/synctest|virtual time|bounded poll|\bin(Election|Cluster|TaskCluster|RegistryBubble)\(' /dev/null |
        grep -v '^/dev/null$' |
        sed 's/$/: time.Sleep outside of testing\/synctest, without a word why/'
)"

# A comment on lines of its own ends at column 100; a tab counts four. Tables and code in it, which are indented, may be wider.
report comments "$(
    find . -name '*.go' -not -path '*/testdata/*' | while read -r file; do
        sed 's/\t/    /g' "$file" | LC_ALL=C.UTF-8 grep -nE '^ *// [^ ]' | grep -v '// Output:' | LC_ALL=C.UTF-8 grep -E '^[0-9]+:.{101,}' |
            sed "s|^\([0-9]*\):.*|$file:\1: the comment is wider than 100 columns|"
    done
)"

# A condition is "if"; "where" is for places. This lists what may be a condition, and fails nothing: the reader decides.
echo '==> hint: "where" for "if"'
git grep -nwiE "(//|--|#).*\bwhere (it|there|that|this|no|nobody|somebody|Redis) ([a-z]+ )?(is|was|has|had|does|did|can|could|may|must|[a-z]+s)" \
    -- '*.go' '*.lua' '*.sh' Makefile ':!tools/lint.sh' || true

# Without this an editor does not find its way into a nested module.
workspace=$(GOWORK=$root/go.work go list -m)
report go.work "$(
    for module in $modules; do
        path=$(cd "$module" && GOWORK=off go list -m)
        printf '%s\n' "$workspace" | grep -Fqx "$path" ||
            echo "go.work lacks $module: run 'go work use $module'"
    done
)"

check 'go mod tidy' go mod tidy -diff
report 'go mod tidy tools/newest.mod' "$(go mod tidy -modfile=tools/newest.mod -diff 2>&1 | grep -v '^go: downloading ')"
check 'go vet' go vet ./...
check staticcheck "$root/bin/staticcheck" ./...
check golangci-lint "$root/bin/golangci-lint" run --allow-parallel-runners ./...

if [ -n "$failed" ]; then
    echo "lint: failed:$failed" >&2
    exit 1
fi
echo 'lint: ok'
