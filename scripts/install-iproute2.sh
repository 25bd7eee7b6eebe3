#!/bin/sh
# Installs iproute2 where there is a package of it: some tests make networks of
# their own (ip netns), and are skipped without it. Never fails, and says what it
# could not do.
set -u

if command -v ip >/dev/null 2>&1; then
    exit 0
fi

if command -v apt-get >/dev/null 2>&1; then
    install='apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends iproute2'
elif command -v dnf >/dev/null 2>&1; then
    install='dnf install -y iproute'
else
    echo 'install-iproute2: no package is known here; tests of partitioned machines will be skipped.'
    exit 0
fi

if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    sudo='sudo -n'
else
    echo "install-iproute2: tests of partitioned machines will be skipped until you run: sudo $install"
    exit 0
fi

echo 'install-iproute2: installing iproute2'
# shellcheck disable=SC2086 # words on purpose
DEBIAN_FRONTEND=noninteractive $sudo $install </dev/null >/dev/null 2>&1 ||
    echo "install-iproute2: that failed; tests of partitioned machines will be skipped. Run by hand: ${sudo:+sudo }$install"
exit 0
