# shellcheck shell=bash
# What the commands of the laboratory share: its names, its namespaces, its hosts. Sourced, never run.
#
#   namespace net      three bridges: lan, direct, fence; both BMCs live at the fence bridge
#   namespace HOST     eth0 at lan, eth1 at direct, eth2 at fence: where the host's container boots
#   namespace client   eth0 at lan
#   namespace storage  eth0 at fence: a storage server, where a site has one
#
# The addresses are those of config/leasehold.toml. Nothing is visible outside of the namespaces.

hosts=(heron plover)
lab_root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
project=$(dirname "$(dirname "$lab_root")")
labs=$project/target/lab/run
export PATH=$PATH:/usr/sbin:/sbin

die() {
    echo "lab: $*" >&2
    exit 1
}

# shellcheck source=tests/lab/container.sh
. "$lab_root/container.sh"

# Everything of the laboratory called $1 has its name from here.
use_lab() {
    name=${1:-}
    [[ $name =~ ^[a-z0-9-]{1,24}$ ]] || die "a laboratory's name is lower case, digits and '-', not '$name'"
    state=$labs/$name
}

# The laboratory must be there, and have this host.
must_have() {
    local up
    if [ ! -e "$state/owner" ]; then
        up=$(find "$labs" -mindepth 1 -maxdepth 1 -type d -printf '%f ' 2>/dev/null || true)
        die "there is no laboratory '$name'; tests/lab/up makes one (there is: ${up:-none})"
    fi
    case $1 in
    heron | plover | client | net | storage) ;;
    *) die "there is no '$1' in a laboratory, only ${hosts[*]}, client, storage and net" ;;
    esac
}

netns() {
    echo "leasehold-$name-$1"
}

# Runs a command in a namespace, without the mount namespace that `ip netns exec` makes.
within() {
    local where=$1
    shift
    nsenter --net="/run/netns/$(netns "$where")" -- "$@"
}

number_of() {
    case $1 in
    heron) echo 1 ;;
    plover) echo 2 ;;
    *) die "there is no host $1, only ${hosts[*]}" ;;
    esac
}

# The address of an interface of a host, as config/leasehold.toml has it.
address_of() {
    local net
    case $2 in
    eth0) net=192.0.2 ;;
    eth1) net=198.51.100 ;;
    eth2) net=203.0.113 ;;
    esac
    echo "$net.$(number_of "$1")/24"
}

# Ends the process that wrote this file, if it still is that one: it works in the folder of the file.
end_process() {
    local pid
    pid=$(cat "$1" 2>/dev/null || true)
    if [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$(dirname "$1")" ]; then
        kill -KILL "$pid"
    fi
}

# Whatever is left of a laboratory goes, also of one whose making was cut off.
take_down() {
    local host pid group space
    for pid in "$state"/*/pid "$state"/*/pid-*; do
        end_process "$pid"
    done
    for host in "${hosts[@]}"; do
        if [ -e "$(power_group "$host")/cgroup.kill" ]; then
            echo 1 >"$(power_group "$host")/cgroup.kill"
        fi
        until ! is_on "$host"; do sleep 0.02; done
        for group in $(control_groups "$host"); do
            [ ! -e "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
        done
        umount --quiet --lazy "$state/$host/root" 2>/dev/null || true
    done
    for space in net client storage "${hosts[@]}"; do
        [ ! -e "/run/netns/$(netns "$space")" ] || ip netns delete "$(netns "$space")"
    done
    umount --quiet --lazy "$state/disk" 2>/dev/null || true
    # A killed tgtd leaves them, in a folder of the whole machine.
    [ ! -e "$state/storage/control" ] || rm -f "/var/run/tgtd/socket.$(cat "$state/storage/control")"{,.lock}
    rm -rf --one-file-system "$state"
}

# A laboratory whose owner has died is nobody's.
take_down_orphans() {
    local folder owner
    for folder in "$labs"/*/; do
        [ -e "$folder/owner" ] || continue
        owner=$(cat "$folder/owner")
        [ "$owner" = nobody ] || [ -e "/proc/$owner" ] || (use_lab "$(basename "$folder")" && take_down)
    done
}
