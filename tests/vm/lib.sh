# shellcheck shell=bash
# What the scenarios of the virtual laboratory share: its network, its machines, its judgements. Sourced by tests/vm/run.
#
#   one network namespace: bridges lan, direct, fence and control, one tap for each card of each machine
#   machine N: eth0 192.0.2.N and 2001:db8::N at lan · eth1 198.51.100.N at direct · eth2 203.0.113.N at fence ·
#              eth3 10.97.9.N at control, by which it is commanded
#
# The namespace itself has number 100 on lan, and 254 on control. Nothing is visible outside of it.

# shellcheck source=tests/vm/machine.sh
. tests/vm/machine.sh
export PATH=$PATH:/usr/sbin:/sbin
# Of the scenario that is played, set by tests/vm/run: its folder, the image, the package.
: "${state:=}" "${package:=}"
# Of every wait: an emulated machine beside others that work is slow.
patience=${LEASEHOLD_VM_PATIENCE:-240}
space=leasehold-vm-$$

say() {
    printf 'vm: %6.1f s  %s\n' "$(since_start)" "$*"
}

die() {
    echo "vm: FAILED: $*" >&2
    exit 1
}

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

started_ms=$(now_ms)

since_start() {
    local ms=$(($(now_ms) - started_ms))
    echo "$((ms / 1000)).$(printf '%03d' $((ms % 1000)))"
}

# Runs a command again and again until it succeeds:   await WHAT COMMAND…
await() {
    local what=$1 end=$((SECONDS + patience))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || die "not within $patience s: $what"
        sleep 0.2
    done
}

# expect WHAT COMMAND…: it succeeds, or the scenario has failed.
expect() {
    local what=$1 told
    shift
    told=$("$@" 2>&1) || die "$what: '$*' says: $told"
    say "ok: $what"
}

# expect_failure WHAT WORDS COMMAND…: it fails, and says these words.
expect_failure() {
    local what=$1 words=$2 told
    shift 2
    if told=$("$@" 2>&1); then die "$what: '$*' succeeds: $told"; fi
    grep -qE -- "$words" <<<"$told" || die "$what: '$*' does not say '$words' but: $told"
    say "ok: $what"
}

# --- network -----------------------------------------------------------------------------------------------------------

make_network() {
    local bridge
    ip netns add "$space"
    ip -n "$space" link set lo up
    for bridge in "${bridges[@]}"; do
        ip -n "$space" link add "$bridge" type bridge
        ip -n "$space" link set "$bridge" up
    done
    ip -n "$space" address add 192.0.2.100/24 dev lan
    ip -n "$space" address add 2001:db8::100/64 dev lan nodad
    ip -n "$space" address add 10.97.9.254/24 dev control
}

# --- machines ----------------------------------------------------------------------------------------------------------

# A script on a machine, from standard input.
script_on() {
    on "$1" bash -euo pipefail -s
}

copy_to() {
    local machine=$1 mode=$2 to=$3
    on "$machine" install -D -m "$mode" /dev/stdin "$to"
}

until_up() {
    await "$1 answers" is_reachable "$1"
    say "$1 is up"
}

install_package() {
    copy_to "$1" 0644 /root/leasehold.deb <"$package"
    on "$1" dpkg --force-depends --install /root/leasehold.deb >"$state/$1/dpkg.log" 2>&1 ||
        die "$1: dpkg: $(tail -5 "$state/$1/dpkg.log")"
}

# --- the end -----------------------------------------------------------------------------------------------------------

take_down() {
    local home pid
    for home in "$state"/*/; do
        [ -e "$home/number" ] || continue
        forget_way_in "$(basename "$home")"
        pid=$(pid_of "$(basename "$home")") && kill -KILL "$pid"
    done
    for pid in "${companions[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    [ ! -e "/run/netns/$space" ] || ip netns delete "$space"
}

# What else was started, by process number; its end is nothing to be told of.
companions=()

companion() {
    companions+=($!)
    disown
}
