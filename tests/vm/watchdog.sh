# shellcheck shell=bash
# A kernel that hangs, a guard and a daemon that stand still: the hardware watchdog resets the machine before its peer could
# act, even where fencing does nothing at all.
#
#   heron   i6300esb     plover  softdog     both: a pair whose fence agents claim an off that never happens, so that the
#                                            end of the lease alone keeps the standby back
#
# The clock is this machine's: the emulator tells of each reset when it happens (QMP), and the service sends a line with its
# token ten times a second to the observer, here.

# Of the scenario, set by tests/vm/run: its folder.
: "${state:=}"

play_watchdog() {
    define heron 1 320 -watchdog-action reset -device i6300esb
    define plover 2 320
    power_on heron
    power_on plover
    observe
    until_up heron
    until_up plover
    watch_resets heron
    watch_resets plover
    local machine
    for machine in heron plover; do
        install_package "$machine"
        set_up_guarded "$machine"
    done
    # A pair is new once: the first contact makes the one that is named first the primary.
    share_is_refused
    on heron systemctl start leasehold-guard leasehold
    on plover systemctl start leasehold-guard leasehold
    times_of_the_lease
    until_serves heron 0
    expect "the guard has armed i6300esb" on heron bash -c "journalctl -u leasehold-guard -o cat | grep 'is armed'"
    # shellcheck disable=SC2016 # for the machine's own shell
    local guard='$(systemctl show -P MainPID leasehold-guard)' daemon='$(systemctl show -P MainPID leasehold)'
    reset_of heron "kernel hang (i6300esb)" 1 bash -c '(sleep 0.5; echo c >/proc/sysrq-trigger) >/dev/null 2>&1 &'
    back_to heron
    reset_of heron "guard stopped (i6300esb)" 1 bash -c "kill -STOP $guard"
    back_to heron
    reset_of heron "guard and daemon stopped (i6300esb)" 1 bash -c "kill -STOP $guard $daemon"
    until_up heron
    await "the pair is whole" is_whole
    reset_of plover "guard and daemon stopped (softdog)" 0 bash -c "kill -STOP $guard $daemon"
    back_to heron
    magic_close
    table
}

# What the pair of this scenario looks like. Its fence agents lie.
pair_of_liars() {
    cat <<'TOML'
[cluster]
name = "estuary"
key = "/etc/leasehold/key"
data = "shared"
[[node]]
name = "heron"
[[node]]
name = "plover"
[[link]]
name = "lan"
addresses = { heron = "192.0.2.1", plover = "192.0.2.2" }
[[link]]
name = "direct"
addresses = { heron = "198.51.100.1", plover = "198.51.100.2" }
port = 7421
[heartbeat]
interval = "500ms"
dead_after = "4s"
[lease]
pause = "3s"
[guard]
watchdog = "auto"
[fence]
head_start = "2.5s"
[promote]
after = "fence+lease"
[[fence.agent]]
name = "liar-heron"
target = "heron"
kind = "exec"
scope = "node"
program = "/usr/local/libexec/fence-liar"
timeout = "10s"
typical = "2s"
[[fence.agent]]
name = "liar-plover"
target = "plover"
kind = "exec"
scope = "node"
program = "/usr/local/libexec/fence-liar"
timeout = "10s"
typical = "2s"
[[resource]]
name = "gauges"
kind = "exec"
start = ["/usr/local/bin/gauges"]
start_timeout = "20s"
stop_timeout = "2s"
TOML
}

set_up_guarded() {
    local machine=$1
    copy_to "$machine" 0755 /usr/local/bin/gauges <"$state/gauges"
    copy_to "$machine" 0755 /usr/local/libexec/fence-liar <<'SCRIPT'
#!/bin/sh
# Claims whatever it was asked for.
said=/run/leasehold/fence-liar
case $(cat $said 2>/dev/null),$1 in
off,status)
    echo off
    exit 2
    ;;
*,status) ;;
*) echo "$1" >$said ;;
esac
SCRIPT
    pair_of_liars | copy_to "$machine" 0644 /etc/leasehold/leasehold.toml
    copy_to "$machine" 0600 /etc/leasehold/key <"$state/cluster-key"
    # Without i6300esb the software's own timer is the watchdog.
    [ "$machine" = heron ] || echo softdog | copy_to "$machine" 0644 /etc/modules-load.d/softdog.conf
    script_on "$machine" <<'SCRIPT'
[ -e /dev/watchdog0 ] || modprobe softdog
leasehold check /etc/leasehold/leasehold.toml >/run/check
systemctl -q enable leasehold-guard leasehold
SCRIPT
}

# systemd itself holds the device: nothing starts, and both journals say why.
share_is_refused() {
    script_on heron <<'SCRIPT'
mkdir -p /etc/systemd/system.conf.d
printf '[Manager]\nRuntimeWatchdogSec=30\n' >/etc/systemd/system.conf.d/watchdog.conf
systemctl daemon-reexec
SCRIPT
    await "systemd holds the watchdog" on heron bash -c 'ls -l /proc/1/fd | grep -q /dev/watchdog'
    on heron systemctl start leasehold-guard leasehold
    await "the guard says that it cannot be shared" \
        on heron bash -c "journalctl -u leasehold-guard -o cat | grep 'cannot be shared'"
    say "ok: RuntimeWatchdogSec: $(on heron bash -c "journalctl -u leasehold-guard -o cat | grep 'cannot be shared' | head -1")"
    await "the daemon says so" on heron bash -c "journalctl -u leasehold -o cat | grep 'could not arm the hardware watchdog'"
    on heron leasehold status >"$state/refused-status" || true
    ! grep 'resources *gauges up' "$state/refused-status" || die "a resource runs without a watchdog"
    script_on heron <<'SCRIPT'
systemctl stop leasehold leasehold-guard
rm /etc/systemd/system.conf.d/watchdog.conf
systemctl daemon-reexec
SCRIPT
    await "systemd has let the watchdog go" on heron bash -c '! ls -l /proc/1/fd | grep -q /dev/watchdog'
}

# --- the faults --------------------------------------------------------------------------------------------------------

times_of_the_lease() {
    on heron leasehold check /etc/leasehold/leasehold.toml | grep -E '^  (W|M|T|S|P|R) ' | sed 's/^/    /' | tee "$state/times"
}

seconds_of() {
    sed -n "s/^ *$1 .* \([0-9.]*\)s  [a-z]*  .*/\1/p" "$state/times" | head -1
}

events_of() {
    wc -l <"$state/$1/events" 2>/dev/null || echo 0
}

# The first reset of a node after so many events, if there is one.
reset_after() {
    tail -n "+$(($2 + 1))" "$state/$1/events" | grep -m 1 ' RESET '
}

# reset_of NODE NAME BARKS COMMAND…: the fault, so many events of an emulated watchdog, and by the clock of this machine when
# the node was reset and when its peer began to serve.
reset_of() {
    local node=$1 name=$2 dogs=$3 peer before told token begun reset last served
    shift 3
    peer=$(peer_of "$node")
    before=$(events_of "$node")
    token=$(last_token)
    begun=$(now_ms)
    on "$node" "$@" || true
    await "$node is reset: $name" reset_after "$node" "$before"
    reset=$(reset_after "$node" "$before" | cut -d' ' -f1)
    told=$(tail -n "+$((before + 1))" "$state/$node/events" | grep -c ' WATCHDOG ' || true)
    [ "$told" = "$dogs" ] || die "$name: not as expected: $(tail -n "+$((before + 1))" "$state/$node/events")"
    until_serves "$peer" "$token"
    served=$(first_above "$peer" "$token" | cut -d' ' -f1)
    last=$(awk -v node="$node" -v token="$token" '$2 == node && $3 == token { last = $1 } END { print last }' "$state/ledger")
    [ "$reset" -lt "$served" ] || die "$name: $peer served before $node was reset"
    [ "$last" -lt "$served" ] || die "$name: $node served when $peer did"
    judge_ledger || die "the ledger"
    printf '%s|%s|%s|%s\n' "$name" "$(seconds $((reset - begun)))" "$(seconds $((last - begun)))" "$(seconds $((served - begun)))" >>"$state/figures"
    say "ok: $name: reset after $(seconds $((reset - begun))) s; $peer served after $(seconds $((served - begun))) s"
}

# Both are up and in contact again, and this one serves.
back_to() {
    local node=$1 peer
    peer=$(peer_of "$node")
    until_up "$node"
    until_up "$peer"
    await "the pair is whole" is_whole
    [ "$(tail -1 "$state/ledger" | cut -d' ' -f2)" = "$node" ] && return
    local token
    token=$(last_token)
    on "$peer" rm -f /run/leasehold/fence-liar
    on "$node" rm -f /run/leasehold/fence-liar
    on "$peer" leasehold failover >/dev/null
    until_serves "$node" "$token"
    await "the pair is whole" is_whole
}

# A stop in good order is the one way to leave a watchdog that does not fire.
magic_close() {
    local before token
    before=$(events_of heron)
    token=$(last_token)
    on heron systemctl stop leasehold leasehold-guard
    until_serves plover "$token"
    on heron sleep 20
    ! reset_after heron "$before" || die "a node whose watchdog was closed is reset"
    expect "stopped in good order: $(seconds_of W) s of watchdog, alive after 20 s" on heron bash -c '! pidof leasehold'
    on heron bash -c 'dmesg | grep -iE "watchdog did not stop" && exit 1; cat /sys/class/watchdog/watchdog0/state 2>/dev/null' || true
}

table() {
    say "Linux $(on heron uname -r)"
    sed 's/^/    /' "$state/times"
    echo '| fault | reset after, s | last line of the service, s | peer serves after, s |'
    sed 's/|/ | /g; s/^/| /; s/$/ |/' "$state/figures"
}
