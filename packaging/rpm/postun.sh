#!/bin/sh
# RPM knows no purge: what the daemon and the operator wrote stays, and is named.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "$1" -eq 0 ] && [ -d /var/lib/leasehold ]; then
    echo "leasehold: /var/lib/leasehold stays: this node's record of tokens and promises, and its fence journal." >&2
    echo "leasehold: Remove it only if this node leaves its pair for good; /etc/leasehold has configuration and key." >&2
fi
exit 0
