#!/bin/sh
# Installs libfaketime where there is a package of it: some tests set the clock
# of a redis-server, and are skipped without it. Never fails, and says what it
# could not do.
set -u

for library in "${TENURE_LIBFAKETIME:-}" /usr/lib/*/faketime/libfaketime.so.1 /usr/lib*/faketime/libfaketime.so.1; do
    if [ -e "$library" ]; then
        exit 0
    fi
done

if command -v apt-get >/dev/null 2>&1; then
    install='apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends libfaketime'
elif command -v dnf >/dev/null 2>&1; then
    install='dnf install -y libfaketime'
else
    echo 'install-faketime: no package is known here; tests that set the clock of Redis will be skipped.'
    exit 0
fi

if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    sudo='sudo -n'
else
    echo "install-faketime: tests that set the clock of Redis will be skipped until you run: sudo $install"
    exit 0
fi

echo 'install-faketime: installing libfaketime'
# shellcheck disable=SC2086 # words on purpose
DEBIAN_FRONTEND=noninteractive $sudo $install </dev/null >/dev/null 2>&1 ||
    echo "install-faketime: that failed; tests that set the clock of Redis will be skipped. Run by hand: ${sudo:+sudo }$install"
exit 0
