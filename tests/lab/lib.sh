# shellcheck shell=bash
# What the commands of the laboratory share: its names, its namespaces, its hosts. Sourced, never run.
#
#   namespace net      three bridges: lan, direct, fence; both BMCs live at the fence bridge
#   HOST               eth0 at lan, eth1 at direct, eth2 at fence: a container in a namespace, or a virtual machine
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

# Everything of the laboratory called $1 has its name from here.
use_lab() {
    name=${1:-}
    [[ $name =~ ^[a-z0-9-]{1,24}$ ]] || die "a laboratory's name is lower case, digits and '-', not '$name'"
    state=$labs/$name
    use_hosts "$(cat "$state/hosts" 2>/dev/null || echo container)"
}

# Of which kind they are: there is a file of functions for each.
use_hosts() {
    # shellcheck source=tests/lab/container.sh
    . "$lab_root/$1.sh"
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

# A cable of a namespace: its end at the bridge is called after the namespace and its interface there.
plug_in() {
    local space=$1 interface=$2 address=$3 bridge=${4:-} far=$1-$2
    case $interface in
    eth0) : "${bridge:=lan}" ;;
    eth1) : "${bridge:=direct}" ;;
    eth2) : "${bridge:=fence}" ;;
    esac
    ip -n "$(netns net)" link add "$far" type veth peer name "$interface" netns "$(netns "$space")"
    ip -n "$(netns net)" link set "$far" master "$bridge" up
    ip -n "$(netns "$space")" address add "$address" dev "$interface"
    ip -n "$(netns "$space")" link set "$interface" up
}

surroundings=(env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8)

# Runs a command on a host, as root.
on_host() {
    is_on "$1" || die "$1 is off"
    ! stands_still "$1" || die "$1 stands still"
    run_on "$@"
}

# Writes a file of a host, from standard input:   copy_to HOST MODE PATH
copy_to() {
    on_host "$1" install -D -m "$2" /dev/stdin "$3"
}

# until_so WHAT COMMAND…
until_so() {
    local look what=$1
    shift
    for ((look = 0; look < 900; look++)); do
        if ("$@") >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    die "it does not come to this: $what"
}

# Until the service manager of a host has started all it has to.
until_booted() {
    until_so "$1 boots (see $state/$1)" has_booted "$1"
}

# Degraded is booted as well: which unit has failed is for the tests to say.
has_booted() {
    has_service_manager "$1" || return 1
    on_host "$1" systemctl is-system-running --wait || [ "$(on_host "$1" systemctl is-system-running)" = degraded ]
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
    local host pid space
    for pid in "$state"/*/pid "$state"/*/pid-*; do
        end_process "$pid"
    done
    for host in "${hosts[@]}"; do
        remove_host "$host"
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
