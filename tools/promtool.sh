#!/bin/sh
# Prints the path of promtool and of prometheus: of those on the PATH, or of those in bin/, where it
# puts them out of Debian's package prometheus, without installing that: its service would start.
# Fails, and says why, if there are none.
set -u

bin=$(cd "$(dirname "$0")/.." && pwd)/bin
if command -v promtool >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1; then
    command -v promtool && command -v prometheus
    exit
fi
if [ ! -x "$bin/promtool" ] || [ ! -x "$bin/prometheus" ]; then
    command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || {
        echo "$0: no promtool here, and no Debian package to take it from: install Prometheus" >&2
        exit 1
    }
    dir=$(mktemp -d) || exit 1
    trap 'rm -rf "$dir"' EXIT
    (
        chmod 755 "$dir" && cd "$dir" &&
            { apt-get -q -o APT::Sandbox::User=root download prometheus || { apt-get -q update && apt-get -q -o APT::Sandbox::User=root download prometheus; } } &&
            dpkg-deb -x prometheus_*.deb . && mkdir -p "$bin" && cp usr/bin/promtool usr/bin/prometheus "$bin/"
    ) >"$dir/log" 2>&1 || {
        tail -5 "$dir/log" >&2
        echo "$0: no promtool: the package prometheus cannot be downloaded" >&2
        exit 1
    }
fi
printf '%s\n' "$bin/promtool" "$bin/prometheus"
