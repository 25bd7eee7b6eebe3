#!/bin/sh
# Puts newer servers beside the system's, for `make matrix`: Redis 8.0 and Valkey 8.1 as Debian trixie has them, unpacked in bin/servers
# with the loader and the libraries they were built for. Nothing is installed, no root is needed, and the system's packages are left
# alone. Works on Debian and what descends from it; elsewhere it says so and the matrix runs with what there is.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
servers=$root/bin/servers
suite=trixie

if [ -x "$servers/redis-8.0" ] && [ -x "$servers/valkey-8.1" ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    echo 'install-servers: needs apt-get and dpkg-deb; the matrix runs with the redis-server that is there.' >&2
    exit 0
fi

# The mirror and the keys of this machine's own Debian.
mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
keys=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -z "$mirror" ]; then # nothing was ever fetched: what the lists of sources name first
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null |
        awk '/^URIs: .*\/debian\/?$/ { print $2; exit } /^deb .*\/debian\/? / { for (i = 2; i <= NF; i++) if ($i ~ /\/debian\/?$/) { print $i; exit } }')
fi
if [ -z "$mirror" ] || [ ! -r "$keys" ]; then
    echo 'install-servers: this is no Debian; the matrix runs with the redis-server that is there.' >&2
    exit 0
fi

work=$servers/.apt
log=$servers/install.log
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/etc"
: >"$work/status"
echo "deb [signed-by=$keys] $mirror $suite main" >"$work/etc/sources.list"
fetch() {
    apt-get -q -y -o Dir::State="$work" -o Dir::State::lists="$work/lists" -o Dir::State::status="$work/status" \
        -o Dir::Cache="$work" -o Dir::Cache::archives="$work/archives" \
        -o Dir::Etc::sourcelist="$work/etc/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o Debug::NoLocking=1 -o APT::Sandbox::User= -o APT::Install-Recommends=0 -o Acquire::Languages=none "$@"
}

# unpack PACKAGE BINARY NAME
unpack() {
    folder=$servers/$3.d
    rm -rf "$folder" "$work/archives"/*.deb
    fetch install --download-only "$1" >>"$log" 2>&1
    mkdir -p "$folder"
    for package in "$work/archives"/*.deb; do
        dpkg-deb -x "$package" "$folder"
    done
    loader=$(find "$folder/" -name 'ld-linux*.so.*' | head -1)
    libraries=$(find "$folder/" -name '*.so.*' -exec dirname {} \; | sort -u | paste -s -d :)
    # exec: the process that is signalled is the server itself. The name is a link, and tells the binary what it is to be.
    cat >"$servers/$3" <<LAUNCHER
#!/bin/sh
exec '$loader' --library-path '$libraries' '$folder/usr/bin/$2' "\$@"
LAUNCHER
    chmod +x "$servers/$3"
    "$servers/$3" --version
}

echo "install-servers: fetching Redis 8.0 and Valkey 8.1 of Debian $suite"
if ! { fetch update >"$log" 2>&1 && unpack redis-server redis-server redis-8.0 && unpack valkey-server valkey-server valkey-8.1; }; then
    tail -20 "$log" >&2
    rm -f "$servers/redis-8.0" "$servers/valkey-8.1"
    echo 'install-servers: that did not work; the matrix runs with the redis-server that is there.' >&2
fi
rm -rf "$work"
