# shellcheck shell=bash
# A host of the laboratory that is a container: systemd-nspawn boots it in a network namespace of its own. Sourced by lib.sh.
: "${state:=}" "${name:=}"

# What stands on a host before leasehold comes: who the service runs as.
make_host() {
    local host=$1 root=$2 home=$state/$1
    mkdir -p "$home/root" "$state/disk/$host/upper" "$state/disk/$host/work"
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$state/disk/$host/upper,workdir=$state/disk/$host/work" "$home/root"
    echo "$host" >"$home/root/etc/hostname"
    introduce "$home"
    chroot "$home/root" useradd --system --no-create-home --shell /usr/sbin/nologin --uid 700 gauges
}

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

# Runs a command on a host, as root.
on_host() {
    local leader host=$1
    shift
    leader=$(leader_of "$host") || die "$host is off"
    ! grep -qsx 1 "$(power_group "$host")/cgroup.freeze" || die "$host stands still"
    # Among the host's processes: a power cut ends it, too.
    (
        echo $BASHPID >"$(power_group "$host")/cgroup.procs"
        enter "$leader" "$@"
    )
}

enter() {
    local leader=$1
    shift
    exec nsenter --target "$leader" --mount --uts --ipc --net --pid --cgroup -- env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 "$@"
}

# Until the service manager of a host has started all it has to.
until_booted() {
    local look leader
    for ((look = 0; look < 600; look++)); do
        if leader=$(leader_of "$1") && [ -e "/proc/$leader/root/run/systemd/private" ] &&
            on_host "$1" systemctl is-system-running --wait >/dev/null 2>&1; then
            return
        fi
        # Degraded is booted as well: which unit has failed is for the tests to say.
        if [ -n "${leader:-}" ] && [ "$(on_host "$1" systemctl is-system-running 2>/dev/null)" = degraded ]; then
            return
        fi
        sleep 0.1
    done
    die "$1 did not boot: $(tail -5 "$state/$1/console")"
}

# With this a container ends that wants to boot again (systemd-nspawn(1), --keep-unit).
rebooted=133

boot() {
    local group
    for group in $(control_groups "$host"); do
        [ -e "$group" ] || mkdir "$group"
        # What was frozen when its power went starts running.
        [ ! -e "$group/cgroup.freeze" ] || echo 0 >"$group/cgroup.freeze"
        echo $BASHPID >"$group/cgroup.procs"
    done
    # The BMC waits for nobody, and keeps no end of a pipe of it.
    exec </dev/null >>"$home/console" 2>&1 9>&-
    local status=$rebooted
    while [ "$status" -eq "$rebooted" ]; do
        status=0
        forget_network
        interfaces up
        setsid systemd-nspawn --quiet --boot --register=no --keep-unit --console=pipe --link-journal=no \
            --network-namespace-path="/run/netns/$(netns "$host")" --capability=all \
            --machine="$name-$host" --hostname="$host" --bind="$state/shared:/srv/gauges" \
            --directory="$home/root" &
        echo $! >"$home/supervisor"
        wait $! || status=$?
    done
}

# What a machine had beyond its own addresses is gone with its kernel; the namespace is kept, and forgets it here.
forget_network() {
    local interface
    nsenter --net="/run/netns/$(netns "$host")" -- nft flush ruleset
    for interface in eth0 eth1 eth2; do
        ip -n "$(netns "$host")" address flush dev "$interface"
        ip -n "$(netns "$host")" address add "$(address_of "$host" "$interface")" dev "$interface"
    done
}

# A machine without power is silent; its namespace alone would still say that nobody listens.
interfaces() {
    local interface
    for interface in eth0 eth1 eth2; do
        ip -n "$(netns "$host")" link set "$interface" "$1"
    done
}
