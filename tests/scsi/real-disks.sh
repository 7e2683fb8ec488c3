#!/bin/bash
# Checks the agent "scsi-pr" against a real disk that two machines reach. NOT part of the test suite.
#
#   tests/scsi/real-disks.sh --peer HOST --disk /dev/disk/by-id/wwn-0x… [--yes]
#
# What it needs: root here and, by ssh without a password, on HOST; sg3-utils on both; the same disk under the same name on
# both; and nothing on the disk that anybody misses: it is WRITTEN TO, and all its registrations are CLEARED.
#
# What it does, each step with the commands that the agent itself uses, and stops at the first that is not as it must be:
#   1. capabilities: the type "write exclusive, registrants only", and registrations that outlive a loss of power;
#   2. this node registers over each path, reserves, and writes; the peer's write is refused;
#   3. the peer registers and preempts the key that it saw; this node's next write is refused while a writer runs;
#   4. a late preempt with the old key is refused and changes nothing;
#   5. both nodes reserve the free disk at the same instant, 100 times: exactly one wins each;
#   6. everything is cleared.
set -euo pipefail

peer='' disk='' yes=false
while [ $# -gt 0 ]; do
    case $1 in
        --peer) peer=$2; shift 2 ;;
        --disk) disk=$2; shift 2 ;;
        --yes) yes=true; shift ;;
        *) sed -n '2,6p' "$0" >&2; exit 2 ;;
    esac
done
if [ -z "$peer" ] || [ -z "$disk" ]; then sed -n '2,6p' "$0" >&2; exit 2; fi
case $disk in /dev/disk/by-id/*) ;; *) echo "name the disk as in /dev/disk/by-id/" >&2; exit 2 ;; esac
if ! $yes; then
    read -r -p "All data and registrations on $disk are lost. Type its name to go on: " answer
    [ "$answer" = "$disk" ] || exit 1
fi

fail() { echo "NOT AS IT MUST BE: $*" >&2; exit 1; }
say() { echo "== $*"; }

# Keys as the agent makes them: 1ea, three digits of the node, ten of the token.
key() { printf '1ea%s%010x' "$1" "$2"; }

# The paths to the disk on a machine: those below a multipath map, or the disk itself.
# shellcheck disable=SC2016 # expanded over there
paths='real=$(readlink -f DISK); name=$(basename "$real")
case $name in dm-*) ls "/sys/block/$name/slaves" | sed "s|^|/dev/|" ;; *) echo "$real" ;; esac'
paths=${paths//DISK/$disk}
mapfile -t here < <(bash -c "$paths")
# shellcheck disable=SC2029 # expanded here
mapfile -t there < <(ssh "$peer" "$paths")
say "${#here[@]} paths here, ${#there[@]} on $peer"

at_here() { sg_persist --no-inquiry "$@"; }
# shellcheck disable=SC2029
at_peer() { ssh "$peer" sg_persist --no-inquiry "$@"; }
# A unit attention is told once and says only that something changed.
again() { local rc=0; for _ in 1 2 3 4; do rc=0; "$@" >/dev/null 2>&1 || rc=$?; [ $rc = 6 ] || break; done; return $rc; }
write_here() { dd if=/dev/zero of="$disk" bs=512 count=1 seek="${1:-1}" oflag=direct conv=notrunc status=none 2>/dev/null; }
# shellcheck disable=SC2029
write_peer() { ssh "$peer" "dd if=/dev/zero of=$disk bs=512 count=1 seek=2 oflag=direct conv=notrunc status=none 2>/dev/null"; }
holder() { at_here --in --read-reservation "${here[0]}" | sed -n 's/^ *Key=0x//p'; }
register_here() { for p in "${here[@]}"; do again at_here --out --register-ignore --param-aptpl --param-sark="$1" "$p"; done; }
register_peer() { for p in "${there[@]}"; do again at_peer --out --register-ignore --param-aptpl --param-sark="$1" "$p"; done; }
clear_all() {
    again at_here --out --register-ignore --param-sark=1 "${here[0]}" || true
    again at_here --out --clear --param-rk=1 "${here[0]}" || true
}
trap clear_all EXIT

say "1 capabilities"
capabilities=$(at_here --in --report-capabilities "${here[0]}")
grep -q 'Capable(PTPL_C): 1' <<<"$capabilities" || fail "the target forgets its keys when it loses power (APTPL)"
grep -q 'registrants only: 1' <<<"$capabilities" || fail "no write exclusive, registrants only"
clear_all

say "2 register, reserve, write"
a=$(key aaa 2) b=$(key bbb 3)
register_here "$a" || fail "register"
again at_here --out --reserve --param-rk="$a" --prout-type=5 "${here[0]}" || fail "reserve"
[ "$(holder)" = "$a" ] || fail "the holder is not this node"
keys=$(at_here --in --read-full-status "${here[0]}" | grep -c "Key=0x$a" || true)
[ "$keys" = "${#here[@]}" ] || fail "$keys registrations for ${#here[@]} paths"
write_here || fail "this node cannot write"
write_peer && fail "the peer writes without a registration"

say "3 the peer preempts what it saw, while this node writes"
last=$(mktemp)
( i=8; while write_here $i; do date +%s.%N >"$last"; i=$((i % 4096 + 8)); done ) &
writer=$!
register_peer "$b" || fail "the peer cannot register"
again at_peer --out --preempt-abort --param-rk="$b" --param-sark="$a" --prout-type=5 "${there[0]}" || fail "preempt and abort"
confirmed=$(date +%s.%N)
wait "$writer" || true
[ "$(cat "$last")" \< "$confirmed" ] || fail "a write succeeded after the preempt"
[ "$(holder)" = "$b" ] || fail "the peer does not hold"
at_here --in --read-keys "${here[0]}" | grep -q "$a" && fail "this node's key is still there"
write_here && fail "this node still writes"
write_peer || fail "the peer cannot write"

say "4 a late preempt"
again at_here --out --preempt-abort --param-rk="$a" --param-sark="$b" --prout-type=5 "${here[0]}" && fail "a late preempt succeeded"
[ "$(holder)" = "$b" ] || fail "a late preempt changed the holder"

say "5 races for a free disk"
a=$(key aaa 4) b=$(key bbb 5) here_won=0 there_won=0
for _ in $(seq 100); do
    clear_all
    register_here "$a" || fail "register"
    register_peer "$b" || fail "register at the peer"
    again at_peer --out --reserve --param-rk="$b" --prout-type=5 "${there[0]}" & other=$!
    if again at_here --out --reserve --param-rk="$a" --prout-type=5 "${here[0]}"; then i=1; else i=0; fi
    if wait "$other"; then it=1; else it=0; fi
    case $i$it$(holder) in
        10"$a") here_won=$((here_won + 1)) ;;
        01"$b") there_won=$((there_won + 1)) ;;
        *) fail "here $i, there $it, held by $(holder)" ;;
    esac
done
say "won here $here_won, won there $there_won"
say "6 cleared; all as it must be"
