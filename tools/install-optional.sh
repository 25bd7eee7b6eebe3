#!/bin/sh
# Installs what only some tests need, if there is a package of it; they are skipped
# without. Never fails, and says what it could not do. With -missing it installs nothing and lists what it would.
#   ip           networks of a test's own, of machines that are cut from each other
#   libfaketime  a redis-server whose clock is set
#   chromium     the status page in a browser
set -u

listing=${1:-}
listed=

present() {
    case $1 in
    ip) command -v ip >/dev/null 2>&1 ;;
    libfaketime)
        for library in "${TENURE_LIBFAKETIME:-}" /usr/lib/*/faketime/libfaketime.so.1 /usr/lib*/faketime/libfaketime.so.1; do
            [ -e "$library" ] && return
        done
        return 1
        ;;
    chromium)
        for name in "${TENURE_CHROMIUM:-chromium}" chromium-browser google-chrome chrome; do
            command -v "$name" >/dev/null 2>&1 && return
        done
        return 1
        ;;
    esac
}

# package NAME DEB RPM TESTS
package() {
    present "$1" && return
    if command -v apt-get >/dev/null 2>&1; then
        install="apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends $2"
    elif command -v dnf >/dev/null 2>&1; then
        install="dnf install -y $3"
    else
        [ -n "$listing" ] || echo "$0: no package of $1 is known here: $4 will be skipped"
        return
    fi
    if [ -n "$listing" ]; then
        listed="$listed${listed:+, }$1"
        return
    fi
    if [ "$(id -u)" -eq 0 ]; then
        sudo=
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo='sudo -n'
    else
        echo "$0: $4 will be skipped until you run: sudo $install"
        return
    fi
    echo "$0: installing $1"
    # shellcheck disable=SC2086 # words on purpose
    DEBIAN_FRONTEND=noninteractive $sudo $install </dev/null >/dev/null 2>&1 ||
        { command -v apt-get >/dev/null 2>&1 && $sudo apt-get -q -o DPkg::Lock::Timeout=120 update >/dev/null 2>&1 &&
            DEBIAN_FRONTEND=noninteractive $sudo $install </dev/null >/dev/null 2>&1; } ||
        echo "$0: that failed: $4 will be skipped. Run by hand: ${sudo:+sudo }$install"
}

package ip iproute2 iproute 'tests of partitioned machines'
package libfaketime libfaketime libfaketime 'tests that set the clock of Redis'
package chromium 'chromium fonts-dejavu-core' 'chromium dejavu-sans-fonts' 'tests of the page in a browser'
[ -z "$listing" ] || printf '%s\n' "$listed"
exit 0
