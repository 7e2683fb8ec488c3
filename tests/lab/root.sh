#!/usr/bin/env bash
# The Debian that both hosts of the laboratory boot: built once by mmdebstrap, kept under target/lab, named by its list
# of packages, so that another list makes another root. Prints its path.
#
#   tests/lab/root.sh        (root; some 40 s the first time)
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

suite=bookworm
# What a server has that runs leasehold: a service manager with its bus, the network's tools, the client of its BMC, ssh; what
# the services of the scenarios take (a database, clients of NFS and iSCSI); and a clock that can be set for one process; and what
# restarts daemons after an upgrade of their libraries.
packages=systemd,systemd-sysv,dbus,iproute2,iputils-ping,procps,ipmitool,nftables,init-system-helpers,openssh-server
packages+=,libnfs13,libiscsi7,postgresql-15,libfaketime,needrestart
# Raise it when the steps below change.
recipe=2

name=root-$(printf '%s %s %s\n' "$suite" "$packages" "$recipe" | sha256sum | cut -c1-12)
root=$PWD/target/lab/$name
mkdir -p target/lab
# Two that build at once would take each other's half-finished tree.
exec 9>"$root.lock"
flock 9
if [ ! -e "$root/etc/machine-id" ]; then
    rm -rf --one-file-system "$root" "$root.new"
    mmdebstrap --quiet --variant=minbase --include="$packages" "$suite" "$root.new" >"$root.log" 2>&1 || {
        tail -20 "$root.log" >&2
        exit 1
    }
    # A console that nobody uses, timers that fetch things, and a BMC's own daemon only cost time in a container; the
    # database is leasehold's to start.
    for unit in console-getty.service getty.target apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
        e2scrub_all.timer fstrim.timer ipmievd.service postgresql.service; do
        ln -sf /dev/null "$root.new/etc/systemd/system/$unit"
    done
    # Each host gets an identity of its own when it boots.
    : >"$root.new/etc/machine-id"
    mv "$root.new" "$root"
fi
echo "$root"
