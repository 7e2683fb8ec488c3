#!/usr/bin/env bash
# Runs the maintainer scripts of both packages where systemd seems to run, with stand-ins for the programs that they call:
# what they start, stop and replace, and when they refuse.
#
#   packaging/try-scripts.sh RPM        (root; the machine itself stays as it is)
set -euo pipefail

if [ "${LEASEHOLD_TRIAL:-}" != inside ]; then
    LEASEHOLD_TRIAL=inside exec unshare --mount --propagation private "$(realpath "$0")" "$(realpath "$1")"
fi

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$scratch/bin"
mount -t tmpfs tmpfs /var/lib
for script in POSTIN PREUN POSTUN; do
    rpm -qp --queryformat "%{$script}" "$1" >"$scratch/$script"
done

# Each writes down how it was called; the environment says what is active and what fails.
cat >"$scratch/bin/systemctl" <<'END'
#!/bin/sh
echo "systemctl $*" >>"$CALLS"
case "$*" in
*is-active*) [ -n "$ACTIVE" ] ;;
stop\ leasehold.service) [ -z "$STUCK" ] ;;
esac
END
# shellcheck disable=SC2016 # Expanded by the stand-in.
printf '#!/bin/sh\necho "systemctl $*" >>"$CALLS"\n' >"$scratch/bin/deb-systemd-invoke"
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ -z "$REFUSES" ]\n' >"$scratch/bin/leasehold"
chmod 0755 "$scratch"/bin/*

# run STATUS SCRIPT ARGUMENT…: what it called lies in $CALLS, what it said in $scratch/said.
run() {
    local wanted=$1 status=0
    shift
    : >"$CALLS"
    PATH=$scratch/bin:$PATH sh "$@" >"$scratch/said" 2>&1 || status=$?
    [ "$status" -eq "$wanted" ] || fail "$* ended with $status, not $wanted"
}

called() {
    grep -q -- "$1" "$CALLS" || fail "did not call: $1"
}

not_called() {
    ! grep -q -- "$1" "$CALLS" || fail "called: $1"
}

said() {
    grep -q -- "$1" "$scratch/said" || fail "did not say: $1"
}

fail() {
    echo "try-scripts: $*" >&2
    cat "$CALLS" "$scratch/said" >&2
    exit 1
}

export CALLS=$scratch/calls ACTIVE='' STUCK='' REFUSES=''

# A first installation starts nothing.
for begin in "$here/postinst configure" "$scratch/POSTIN 1"; do
    # shellcheck disable=SC2086 # A script and its arguments.
    ACTIVE=yes run 0 $begin
    not_called start
    not_called enable
done
# An upgrade replaces a running daemon by one that can start, and leaves the service to it.
for upgrade in "$here/postinst configure 0.1.0-1" "$scratch/POSTIN 2"; do
    # shellcheck disable=SC2086
    run 0 $upgrade
    not_called restart
    # shellcheck disable=SC2086
    ACTIVE=yes run 0 $upgrade
    called 'try-restart leasehold-guard.service leasehold.service'
    # shellcheck disable=SC2086
    ACTIVE=yes REFUSES=yes run 0 $upgrade
    not_called restart
    said 'goes on running'
done
for upgrade in "$here/prerm upgrade 0.2.0-1" "$scratch/PREUN 1"; do
    # shellcheck disable=SC2086
    ACTIVE=yes run 0 $upgrade
    not_called stop
done
# A removal hands over first, the guard last; and does not happen where that fails.
for remove in "$here/prerm remove" "$scratch/PREUN 0"; do
    # shellcheck disable=SC2086
    ACTIVE=yes run 0 $remove
    said 'hands the service over first'
    [ "$(grep -o 'stop leasehold.*' "$CALLS" | tr '\n' ' ')" = \
        'stop leasehold.service stop leasehold-guard.service leasehold-agent.socket leasehold-resource.socket ' ] ||
        fail 'stopped in another order'
    called 'disable leasehold.service leasehold-guard.service'
    # shellcheck disable=SC2086
    ACTIVE=yes STUCK=yes run 1 $remove
    said 'is not removed'
    not_called 'stop leasehold-guard'
    not_called disable
done
# The record of a node outlives the package, and a purge says what it takes.
mkdir -p /var/lib/leasehold
for removed in "$here/postrm remove" "$scratch/POSTUN 0"; do
    # shellcheck disable=SC2086
    run 0 $removed
    said '/var/lib/leasehold stays'
    [ -e /var/lib/leasehold ] || fail 'the record is gone'
done
run 0 "$here/postrm" purge
said 'removes /var/lib/leasehold'
[ ! -e /var/lib/leasehold ] || fail 'the record is still there'
echo "the scripts of both packages start, replace, hand over, refuse and keep as they should"
