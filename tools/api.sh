#!/bin/sh
# Compares the public API with that of the last tag and lists what breaks users. Fails if a release of v1 or later
# would; before that the changelog has to say it. Nothing to do without a tag.
set -eu

apidiff=golang.org/x/exp/cmd/apidiff@latest
tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || {
    echo 'api: no tag yet, nothing to compare with'
    exit 0
}
work=$(mktemp -d)
trap 'git worktree remove --force "$work/old" >/dev/null 2>&1; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/old" "$tag"

# The diff of the whole module leaves out what is internal.
GOBIN="$work" go install "$apidiff"
(cd "$work/old" && "$work/apidiff" -m -w "$work/old.api" "$(go list -m)")
"$work/apidiff" -m -w "$work/new.api" "$(go list -m)"
breaks=$("$work/apidiff" -m -incompatible "$work/old.api" "$work/new.api")
if [ -z "$breaks" ]; then
    echo "api: compatible with $tag"
    exit 0
fi
printf 'api: not compatible with %s:\n%s\n' "$tag" "$breaks"
case $tag in
v0.*) echo 'api: allowed before v1; say it in CHANGELOG.md' ;;
*) exit 1 ;;
esac
