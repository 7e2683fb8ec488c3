# shellcheck shell=bash
# A host of the laboratory that is a container: systemd-nspawn boots it in a network namespace of its own. Sourced by lib.sh;
# machine.sh has the same functions for virtual machines.
: "${state:=}" "${name:=}" "${lab_root:=}"

prepare_hosts() {
    root=$("$lab_root/root.sh")
}

make_host() {
    local host=$1 home=$state/$1 interface
    mkdir -p "$home/root" "$state/disk/$host/upper" "$state/disk/$host/work"
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$state/disk/$host/upper,workdir=$state/disk/$host/work" "$home/root"
    echo "$host" >"$home/root/etc/hostname"
    ip netns add "$(netns "$host")"
    ip -n "$(netns "$host")" link set lo up
    for interface in eth0 eth1 eth2; do
        plug_in "$host" "$interface" "$(address_of "$host" "$interface")"
    done
}

# What its BMC calls the machine. A container reads nothing of the kind from within.
system_uuid() {
    printf '%s' "$name-$1" | md5sum | cut -c1-32
}

# It is as fast as this machine.
adapt() {
    :
}

# --- its power ---------------------------------------------------------------------------------------------------------

# Both trees in which a container keeps its processes: a host of its own in each, so that two do not meet.
control_groups() {
    local mount
    for mount in /sys/fs/cgroup/unified /sys/fs/cgroup/systemd /sys/fs/cgroup; do
        [ -e "$mount/cgroup.procs" ] && echo "$mount/leasehold-$name-$1"
    done
}

# The one that can kill: of version 2.
power_group() {
    local group
    for group in $(control_groups "$1"); do
        [ -e "$(dirname "$group")/cgroup.controllers" ] && echo "$group" && return
    done
    die "this machine has no control groups of version 2"
}

# The host's power: whether any process of it lives.
is_on() {
    grep -qs '^populated 1$' "$(power_group "$1")/cgroup.events"
}

# With this a container ends that wants to boot again (systemd-nspawn(1), --keep-unit).
rebooted=133

switch_on() {
    is_on "$1" || boot "$1" &
}

boot() {
    local host=$1 home=$state/$1 group status=$rebooted
    mute "$host" no
    for group in $(control_groups "$host"); do
        [ -e "$group" ] || mkdir "$group"
        # What was frozen when its power went starts running.
        [ ! -e "$group/cgroup.freeze" ] || echo 0 >"$group/cgroup.freeze"
        echo $BASHPID >"$group/cgroup.procs"
    done
    # The BMC waits for nobody, and keeps no end of a pipe of it.
    exec </dev/null >>"$home/console" 2>&1 9>&-
    while [ "$status" -eq "$rebooted" ]; do
        status=0
        forget_network "$host"
        interfaces "$host" up
        setsid systemd-nspawn --quiet --boot --register=no --keep-unit --console=pipe --link-journal=no \
            --network-namespace-path="/run/netns/$(netns "$host")" --capability=all \
            --machine="$name-$host" --hostname="$host" --bind="$state/shared:/srv/gauges" \
            --directory="$home/root" &
        echo $! >"$home/supervisor"
        wait $! || status=$?
    done
}

switch_off() {
    local look
    [ ! -e "$(power_group "$1")" ] || echo 1 >"$(power_group "$1")/cgroup.kill"
    interfaces "$1" down
    # The kernel ends them one by one; whoever switches it on at once finds it off. A BMC does not wait for ever, either.
    for ((look = 0; look < 100; look++)); do
        is_on "$1" || break
        sleep 0.01
    done
}

# What a machine had beyond its own addresses is gone with its kernel; the namespace is kept, and forgets it here.
forget_network() {
    local interface
    nsenter --net="/run/netns/$(netns "$1")" -- nft flush ruleset
    for interface in eth0 eth1 eth2; do
        ip -n "$(netns "$1")" address flush dev "$interface"
        ip -n "$(netns "$1")" address add "$(address_of "$1" "$interface")" dev "$interface"
    done
}

# A machine without power is silent; its namespace alone would still say that nobody listens.
interfaces() {
    local interface
    for interface in eth0 eth1 eth2; do
        ip -n "$(netns "$1")" link set "$interface" "$2"
    done
}

# All its processes stand still, the kernel's own way, and nothing of them sees it. Its kernel is this machine's and goes
# on, so that its cables are made to carry nothing out.
stand_still() {
    if [ "$2" = yes ]; then
        mute "$1" yes
        echo 1 >"$(power_group "$1")/cgroup.freeze"
    else
        echo 0 >"$(power_group "$1")/cgroup.freeze"
        mute "$1" no
    fi
}

mute() {
    # There may be none.
    within net nft delete table netdev "mute-$1" 2>/dev/null || true
    [ "$2" = no ] || within net nft "add table netdev mute-$1
        add chain netdev mute-$1 out { type filter hook ingress devices = { $1-eth0, $1-eth1, $1-eth2 } priority 0; policy drop; }"
}

stands_still() {
    grep -qsx 1 "$(power_group "$1")/cgroup.freeze"
}

# --- commands ----------------------------------------------------------------------------------------------------------

# The init process of a host that runs, as seen from here.
leader_of() {
    local supervisor child children
    supervisor=$(cat "$state/$1/supervisor" 2>/dev/null) || return 1
    grep -qzFs -- "--directory=$state/$1/root" "/proc/$supervisor/cmdline" || return 1
    read -ra children <"/proc/$supervisor/task/$supervisor/children"
    for child in "${children[@]}"; do
        [ "$(readlink "/proc/$child/ns/pid")" != "$(readlink /proc/self/ns/pid)" ] && echo "$child" && return
    done
    return 1
}

has_service_manager() {
    local leader
    leader=$(leader_of "$1") && [ -e "/proc/$leader/root/run/systemd/private" ]
}

# Runs a command on a host that is on, as root.
run_on() {
    local leader host=$1
    shift
    leader=$(leader_of "$host") || die "$host is off"
    # Among the host's processes: a power cut ends it, too.
    (
        echo $BASHPID >"$(power_group "$host")/cgroup.procs"
        enter "$leader" "$@"
    )
}

enter() {
    local leader=$1
    shift
    # shellcheck disable=SC2154 # lib.sh has them.
    exec nsenter --target "$leader" --mount --uts --ipc --net --pid --cgroup -- "${surroundings[@]}" "$@"
}

# --- cables and disks --------------------------------------------------------------------------------------------------

cable_of() {
    ip -n "$(netns net)" link set "$1-$2" "$3"
}

# A block device of its own for a host, of 4 MB; prints what the host calls it. It goes with its last user.
make_disk() {
    local device image=$state/disk/$1/small.ext4
    rm -f "$image"
    truncate --size=4M "$image"
    mkfs.ext4 -q -F "$image"
    device=$(losetup --find --show "$image")
    on_host "$1" mknod --mode=0600 "$device" b 7 "${device#/dev/loop}" 2>/dev/null || true
    echo "$device"
}

forget_disk() {
    losetup --detach "$2"
}

# --- the end -----------------------------------------------------------------------------------------------------------

remove_host() {
    local group
    if [ -e "$(power_group "$1")/cgroup.kill" ]; then
        echo 1 >"$(power_group "$1")/cgroup.kill"
    fi
    until ! is_on "$1"; do sleep 0.02; done
    for group in $(control_groups "$1"); do
        [ ! -e "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    umount --quiet --lazy "$state/$1/root" 2>/dev/null || true
}
