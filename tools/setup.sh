#!/bin/sh
# Called by the targets that start servers. In CI and as root it installs what is missing. Anybody else's machine is
# left alone: one line says what is missing. Fails if there is no redis-server then.
set -u

here=$(dirname "$0")
if [ -n "${CI:-}" ] || [ "$(id -u)" -eq 0 ]; then
    "$here/install-redis.sh" && exec "$here/install-optional.sh"
    exit 1
fi
missing=$("$here/install-optional.sh" -missing)
command -v redis-server >/dev/null 2>&1 || missing="redis-server${missing:+, }$missing"
if [ -n "$missing" ]; then
    echo "missing: $missing; run \`make install-redis\`" >&2
fi
command -v redis-server >/dev/null 2>&1 || exit 1
