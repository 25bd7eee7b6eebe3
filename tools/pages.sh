#!/bin/sh
# Writes the figures of runs into the pages; called by `make pages`, with the
# folder of the JSON files. Whatever stands there is written: sim.json,
# sim-random.json (random profiles alone), virtual.json, fleet*.json, matrix.json, bugs.json. What stands between
#   <!-- figures: NAME -->  and  <!-- end of figures -->
# is replaced; the words around it are for people to write.
set -eu

folder=${1:?which folder of figures? make pages OUT=folder}
[ -d "$folder" ] || { echo "pages: there is no folder $folder" >&2; exit 1; }
block=$(mktemp)
trap 'rm -f "$block" "$block.page"' EXIT

# put PAGE NAME replaces a block by what stands in the file $block.
put() {
    grep -q "^<!-- figures: $2 -->\$" "$1" || { echo "pages: $1 has no block for $2" >&2; exit 1; }
    awk -v begin="<!-- figures: $2 -->" -v end='<!-- end of figures -->' -v block="$block" '
        $0 == begin { print; print ""; while ((getline line < block) > 0) print line; print ""; inside = 1 }
        inside && $0 == end { inside = 0 }
        !inside && $0 != begin { print }
        END { exit inside }
    ' "$1" >"$block.page" || { echo "pages: the block for $2 in $1 has no end" >&2; exit 1; }
    cat "$block.page" >"$1"
    echo "$1: $2"
}

# tables PROGRAM FILE... renders them.
tables() {
    program=$1
    shift
    go run "./internal/proof/cmd/$program" -markdown "$@" >"$block"
}

page=docs/proof.md
if [ -f "$folder/sim.json" ]; then
    tables sim "$folder/sim.json"
    put $page sim
    sed -i.all -n '/^| Outside of one condition/,$p' "$block" && rm -f "$block.all"
    put docs/guarantees.md outside
fi
if [ -f "$folder/sim-random.json" ]; then
    tables sim "$folder/sim-random.json"
    put $page sim-random
fi
if [ -f "$folder/virtual.json" ]; then
    tables virtual "$folder/virtual.json"
    put $page virtual
fi
if ls "$folder"/fleet*.json >/dev/null 2>&1; then
    tables fleet "$folder"/fleet*.json
    put $page fleet
fi
if [ -f "$folder/matrix.json" ]; then
    tables matrix "$folder/matrix.json"
    put $page matrix
fi
if [ -f "$folder/bugs.json" ]; then
    tables bugs "$folder/bugs.json"
    put $page bugs
fi
