#!/usr/bin/env bash
# The load of tests/load.rs on what others run: pairs of keepalived and corosync, each node in a network namespace, with
# times comparable to `lease.term = 2s`, and their defaults. Counts what they take for a failure while nothing failed.
#
#   tests/load/peers.sh [SECONDS]        600 by default; it needs root, keepalived, corosync and stress-ng
#
# Prints a table at the end. Everything lies in namespaces and in a folder of its own, and goes with this process.
set -euo pipefail

seconds=${1:-600}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
export PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d /var/tmp/leasehold-peers.XXXXXX)
tag=lhp$$
processes=()
trap tear_down EXIT

tear_down() {
    local process space
    for process in "${processes[@]}"; do
        kill -KILL "$process" 2>/dev/null || true
    done
    for space in $(ip netns list | awk -v tag="$tag" 'index($1, tag) == 1 { print $1 }'); do
        ip netns delete "$space"
    done
    rm -rf "$work"
}

# Two namespaces with a cable between them: NAME's nodes are 10.77.0.1 and 10.77.0.2.
cable() {
    local name=$1 node
    for node in 1 2; do
        ip netns add "$tag-$name-$node"
        ip -n "$tag-$name-$node" link set lo up
    done
    ip -n "$tag-$name-1" link add eth0 type veth peer name eth0 netns "$tag-$name-2"
    for node in 1 2; do
        ip -n "$tag-$name-$node" address add "10.77.0.$node/24" dev eth0
        ip -n "$tag-$name-$node" link set eth0 up
    done
}

# Runs a node's program, with a /run and a /var/lib of its own. The end of unshare is the end of it.
node() {
    local name=$1 number=$2
    shift 2
    ip netns exec "$tag-$name-$number" unshare --mount --pid --fork --kill-child --mount-proc \
        sh -c 'mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && mkdir /var/lib/corosync && exec "$@"' \
        sh "$@" >"$work/$name-$number.log" 2>&1 </dev/null &
    processes+=($!)
    disown
}

# --- keepalived: the backup takes over after three advertisements and a skew ------------------------------------------

keepalived_pair() {
    local name=$1 advert=$2 priority=$3 number
    cable "$name"
    for number in 1 2; do
        cat >"$work/$name-$number.sh" <<END
#!/bin/sh
echo "\$(date +%s.%N) \$3" >>$work/$name-$number.states
END
        cat >"$work/$name-$number.conf" <<END
global_defs {
    router_id node$number
    vrrp_version 3
    script_user root
    enable_script_security
    $priority
}
vrrp_instance pair {
    state BACKUP
    interface eth0
    virtual_router_id 7
    priority $((150 - number * 10))
    advert_int $advert
    virtual_ipaddress {
        10.77.0.100/24
    }
    notify $work/$name-$number.sh
}
END
        chmod 0700 "$work/$name-$number.sh"
        node "$name" "$number" keepalived --dont-fork --log-console --dump-conf --vrrp --use-file "$work/$name-$number.conf"
    done
}

keepalived_settled() {
    grep -qs MASTER "$work/$1-1.states" && grep -qs BACKUP "$work/$1-2.states"
}

# A change of state on either node while both live is a failure that was none.
keepalived_count() {
    cat "$work/$1-1.states" "$work/$1-2.states" | wc -l
}

# --- corosync: a token that goes round ---------------------------------------------------------------------------------

corosync_pair() {
    local name=$1 token=$2 number
    cable "$name"
    for number in 1 2; do
        cat >"$work/$name-$number.conf" <<END
totem {
    version: 2
    cluster_name: $name
    transport: knet
    crypto_cipher: none
    crypto_hash: none
    $token
}
nodelist {
    node {
        name: one
        nodeid: 1
        ring0_addr: 10.77.0.1
    }
    node {
        name: two
        nodeid: 2
        ring0_addr: 10.77.0.2
    }
}
quorum {
    provider: corosync_votequorum
    two_node: 1
}
logging {
    to_stderr: yes
    to_syslog: no
    to_logfile: no
    timestamp: hires
}
END
        node "$name" "$number" corosync -f -c "$work/$name-$number.conf"
    done
}

corosync_settled() {
    grep -qs 'Members\[2\]: 1 2' "$work/$1-1.log" && grep -qs 'Members\[2\]: 1 2' "$work/$1-2.log"
}

corosync_count() {
    cat "$work/$1-1.log" "$work/$1-2.log" | grep -cE 'A new membership|A processor failed|Token has not been received' || true
}

# How long its own main loop was not scheduled, as it says itself.
corosync_pauses() {
    cat "$work/$1-1.log" "$work/$1-2.log" | grep -oE 'not scheduled for [0-9.]+' | sort -k4 -n | tail -1 | grep -oE '[0-9.]+' || true
}

policy_of() {
    local process
    for process in $(ip netns pids "$tag-$1-1"); do
        case $(cat "/proc/$process/comm" 2>/dev/null) in
        keepalived | corosync) chrt -p "$process" | sed -n 's/.*policy: //p' ;;
        esac
    done | sort | uniq -c | awk '{ printf "%s%s x%s", sep, $2, $1; sep = ", " }'
}

until_settled() {
    local look
    for ((look = 0; look < 600; look++)); do
        "$1_settled" "$2" && return
        sleep 0.1
    done
    echo "peers.sh: $2 did not settle" >&2
    tail -20 "$work/$2"-*.log >&2
    return 1
}

until_counted() {
    local look
    for ((look = 0; look < 600; look++)); do
        [ "$("$1_count" "$2")" -gt "$3" ] && return
        sleep 0.1
    done
    echo "peers.sh: $2 lost its cable, and nothing was counted" >&2
    return 1
}

keepalived_pair ka "0.6" ""
keepalived_pair kart "0.6" "vrrp_rt_priority 50"
keepalived_pair kadef "1" ""
corosync_pair co2 "token: 2000"
corosync_pair codef ""
pairs=(keepalived:ka keepalived:kart keepalived:kadef corosync:co2 corosync:codef)
declare -A before policy
after=()
for pair in "${pairs[@]}"; do
    until_settled "${pair%:*}" "${pair#*:}"
done
for pair in "${pairs[@]}"; do
    before[$pair]=$("${pair%:*}_count" "${pair#*:}")
    policy[$pair]=$(policy_of "${pair#*:}")
done

mkdir "$work/disk"
"$here/hogs.sh" "$((seconds + 60))" "$work/disk" "${LOAD_MEGABYTES:-64}" >/dev/null 2>&1 &
hogs=$!
processes+=("$hogs")
disown
sleep "$seconds"
for pair in "${pairs[@]}"; do
    after[${#after[@]}]=$("${pair%:*}_count" "${pair#*:}")
done
kill -KILL "$hogs"

# A count that stays at zero is worth something if it can rise: now something does fail.
for pair in "${pairs[@]}"; do
    ip -n "$tag-${pair#*:}-1" link set eth0 down
done
index=0
for pair in "${pairs[@]}"; do
    until_counted "${pair%:*}" "${pair#*:}" "${after[index]}"
    index=$((index + 1))
done

echo
echo "$seconds s of load; $(keepalived --version 2>&1 | head -1); $(corosync -v | head -1)"
printf '%-32s %-24s %s\n' pair "scheduling" "changes of state, lost tokens and memberships while all lived"
index=0
for pair in "${pairs[@]}"; do
    case $pair in
    *:ka) words="keepalived, advert_int 0.6" ;;
    *:kart) words="keepalived, the same, real-time" ;;
    *:kadef) words="keepalived, advert_int 1" ;;
    *:co2) words="corosync, token 2000 ms" ;;
    *:codef) words="corosync, default token" ;;
    esac
    longest=
    [ "${pair%:*}" = keepalived ] || longest=$(corosync_pauses "${pair#*:}")
    printf '%-32s %-24s %s%s\n' "$words" "${policy[$pair]}" "$((after[index] - before[$pair]))" \
        "${longest:+ (own words: not scheduled for $longest ms)}"
    index=$((index + 1))
done
