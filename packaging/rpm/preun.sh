#!/bin/sh
# As the .deb does it (packaging/prerm): an upgrade, which says 1, leaves the daemon alone; a removal, which says 0, hands
# the service over first, and does not happen where that fails.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        if systemctl --quiet is-active leasehold.service; then
            echo "leasehold: stops the daemon; a primary hands the service over first." >&2
        fi
        # The guard goes last: it enforces the lease until the daemon has stopped everything.
        if ! systemctl stop leasehold.service; then
            echo "leasehold: the daemon could not be stopped cleanly, so it is not removed. See 'leasehold status'." >&2
            exit 1
        fi
        systemctl stop leasehold-guard.service leasehold-agent.socket leasehold-resource.socket
    fi
    if command -v systemctl >/dev/null; then
        systemctl --no-reload --quiet disable leasehold.service leasehold-guard.service || true
    fi
fi
exit 0
