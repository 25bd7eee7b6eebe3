#!/bin/sh
# A job in shell that one machine at a time may run: it starts itself again under `tenure run`,
# waits until it leads the role "backup", does its work once, and exits with its exit code.
#
#   export TENURE_REDIS_URL=redis://localhost:6379 TENURE_NAMESPACE=shop
#   ./backup.sh /var/lib/shop /var/backups
set -eu

[ -n "${TENURE_TOKEN:-}" ] || exec tenure run --role backup -- sh "$0" "$@"

from=$1
to=$2

# The token grows with each leader: an older one never overwrites what a newer one has written.
archive=$to/backup-$TENURE_TOKEN.tar
trap 'rm -f "$archive.part"' EXIT
trap 'exit 143' TERM
tar -cf "$archive.part" -C "$from" .
mv "$archive.part" "$archive"
echo "$TENURE_INSTANCE_ID has written backup-$TENURE_TOKEN.tar"
