#!/bin/sh
# Makes sure that there is a redis-server: the suites start their own servers
# on free ports. Says nothing if it is there already; installs it as root or
# with `sudo -n`; otherwise prints the command to run and fails.
set -eu

if command -v redis-server >/dev/null 2>&1; then
    exit 0
fi

# The package of Redis, and Valkey's replacement for it if Redis is gone.
if command -v apt-get >/dev/null 2>&1; then
    manager=apt-get
    install='apt-get update && apt-get install -y redis-server'
elif command -v dnf >/dev/null 2>&1; then
    manager=dnf
    install='dnf install -y redis || dnf install -y valkey-compat-redis'
elif command -v yum >/dev/null 2>&1; then
    manager=yum
    install='yum install -y redis'
elif command -v apk >/dev/null 2>&1; then
    manager=apk
    install='apk add --no-cache redis || apk add --no-cache valkey valkey-compat'
elif command -v pacman >/dev/null 2>&1; then
    manager=pacman
    install='pacman -Sy --noconfirm redis || pacman -S --noconfirm valkey'
elif command -v zypper >/dev/null 2>&1; then
    manager=zypper
    install='zypper --non-interactive install redis || zypper --non-interactive install valkey-compat-redis'
elif command -v brew >/dev/null 2>&1; then
    manager=brew
    install='brew install redis'
else
    echo 'install-redis: redis-server is missing and no package manager is known here.' >&2
    echo 'install-redis: install Redis or Valkey so that redis-server is on the PATH.' >&2
    exit 1
fi

if [ "$manager" = brew ] || [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    sudo='sudo -n'
else
    echo 'install-redis: redis-server is missing and installing it needs root. Run:' >&2
    echo "    sudo sh -c '$install'" >&2
    echo 'install-redis: or run `make test-short`, which needs no Redis.' >&2
    exit 1
fi

log=$(mktemp)
policy=
cleanup() {
    rm -f "$log"
    if [ -n "$policy" ]; then
        $sudo rm -f "$policy"
    fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Debian and Ubuntu start the service of a package as it is installed. Nobody
# asked for a server on port 6379, so they are told not to.
install_apt() {
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
        $sudo chmod 755 "$policy"
    fi
    set -- apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends redis-server
    if ! $sudo env DEBIAN_FRONTEND=noninteractive "$@"; then
        $sudo apt-get -q -o DPkg::Lock::Timeout=120 update
        $sudo env DEBIAN_FRONTEND=noninteractive "$@"
    fi
    if [ -d /run/systemd/system ]; then
        $sudo systemctl disable redis-server || true
    fi
}

echo "install-redis: installing redis-server with $manager"
case $manager in
apt-get) install_apt </dev/null >"$log" 2>&1 || status=$? ;;
*) $sudo sh -c "$install" </dev/null >"$log" 2>&1 || status=$? ;;
esac

if [ "${status:-0}" -ne 0 ] || ! command -v redis-server >/dev/null 2>&1; then
    cat "$log" >&2
    echo 'install-redis: that did not bring a redis-server. Run it by hand:' >&2
    echo "    ${sudo:+sudo }sh -c '$install'" >&2
    exit 1
fi
redis-server --version
