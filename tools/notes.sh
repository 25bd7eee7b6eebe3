#!/bin/sh
# Prints what the changelog says of a version, v1.2.3. Fails if that is nothing.
set -eu

version=${1:?which version?}
awk -v heading="${version#v}" '
    /^## / { inside = index($2, "[" heading "]") == 1 || $2 == heading || $2 == "v" heading; next }
    inside { print; if ($0 != "") said = 1 }
    END { exit !said }
' CHANGELOG.md || { echo "notes: CHANGELOG.md says nothing of $version" >&2; exit 1; }
