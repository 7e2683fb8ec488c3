#!/usr/bin/env bash
# Everything at once that keeps a machine from its work, within limits that leave the machine alive:
#
#   tests/load/hogs.sh SECONDS FOLDER [MEGABYTES]
#
# 16 processes that compute, 8 that fill MEGABYTES (64) each and read them back, 4 that write to FOLDER and sync each
# write, and a fork bomb in a room of 64 processes. They live in a PID namespace: the end of this process, by whatever
# way, is the end of all of them.
set -euo pipefail

seconds=$1
folder=$2
megabytes=${3:-64}
# Whose processes the bomb may be: nobody else has this number, so nobody else meets its limit.
bomber=64999
room=64

if [ "${HOGS_INSIDE:-}" != yes ]; then
    HOGS_INSIDE=yes exec unshare --pid --fork --kill-child --mount-proc "$(readlink -f "$0")" "$@"
fi

# It multiplies until there is no room, dies of that, and is thrown again.
throw_bombs() {
    while :; do
        prlimit --nproc=$room setpriv --reuid=$bomber --regid=$bomber --clear-groups \
            sh -c 'bomb() { bomb | bomb & }; bomb' >/dev/null 2>&1 || true
        sleep 0.2
    done
}

throw_bombs &
stress-ng --quiet --temp-path "$folder" --timeout "${seconds}s" --cpu 16 --vm 8 --vm-bytes "${megabytes}m" --vm-keep \
    --hdd 4 --hdd-bytes 16m --hdd-opts fsync
