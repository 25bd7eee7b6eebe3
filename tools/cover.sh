#!/bin/sh
# Measures which statements of the product all suites of the root module reach
# together, and fails if a package is below COVER_MIN per cent. Arguments go
# to go test.
set -eu

profile=coverage.out
packages=$(go list ./... | grep -vE '/(internal/proof|examples)(/|$)' | paste -s -d ' ' -)

go test "$@" -covermode=atomic -coverprofile="$profile" -coverpkg="$(echo "$packages" | tr ' ' ',')" ./...

# Each test binary reports every block; a block is covered if any of them ran it.
awk -v packages="$packages" -v min="${COVER_MIN:-0}" '
    NR > 1 {
        statements[$1] = $2
        if ($3 > 0) hit[$1] = 1
    }
    END {
        for (block in statements) {
            package = block
            sub("/[^/]*$", "", package)
            total[package] += statements[block]
            if (block in hit) covered[package] += statements[block]
        }
        count = split(packages, order, " ")
        print ""
        for (i = 1; i <= count; i++) {
            package = order[i]
            if (!total[package]) continue
            percent = 100 * covered[package] / total[package]
            low = percent < min ? sprintf("  below COVER_MIN=%s", min) : ""
            if (low != "") failed = 1
            printf "%5.1f %%  %s (%d of %d statements)%s\n", percent, package, covered[package], total[package], low
        }
        exit failed
    }
' "$profile"
