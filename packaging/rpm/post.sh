#!/bin/sh
# As the .deb does it (packaging/postinst): a new installation starts and enables nothing; an upgrade, which says 2 or
# more, replaces a running daemon by the new one, which finds lease and resources as they are and goes on.
config=/etc/leasehold/leasehold.toml

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    if [ "$1" -ge 2 ] && systemctl --quiet is-active leasehold.service; then
        # Only a daemon that could start is worth ending the old one: while none runs, nothing renews the lease.
        if leasehold check "$config" >/dev/null 2>&1; then
            systemctl try-restart leasehold-guard.service leasehold.service ||
                echo "leasehold: the new daemon did not start; see 'systemctl status leasehold'." >&2
        else
            echo "leasehold: the old version goes on running, because the new one refuses $config:" >&2
            echo "leasehold: see 'leasehold check $config', then 'systemctl restart leasehold'." >&2
        fi
    fi
fi
exit 0
