# shellcheck shell=bash
# A host of the laboratory that is a virtual machine with a kernel of its own: QEMU, with KVM where that works. Sourced by
# lib.sh; container.sh has the same functions for containers. It is commanded by ssh over a network that no scenario touches.
: "${state:=}" "${name:=}" "${lab_root:=}"

# shellcheck source=tests/vm/machine.sh
. "$lab_root/../vm/machine.sh"
# What was flushed is not lost when the power goes.
# shellcheck disable=SC2034
disk_cache=writeback way_in=()
space=$(netns net)
image=$(cat "$state/image" 2>/dev/null || true)

say() {
    echo "lab: $*" >&2
}

prepare_hosts() {
    "$lab_root/../vm/tools.sh"
    choose_processor
    # shellcheck disable=SC2154 # The function above sets it.
    echo "${processor[1]%%,*}" >"$state/processor"
    image=$("$lab_root/../vm/image.sh")
    echo "$image" >"$state/image"
    ip -n "$space" link add control type bridge
    ip -n "$space" link set control up
    ip -n "$space" address add 10.97.9.254/24 dev control
}

make_host() {
    define "$1" "$(number_of "$1")" 512 \
        -virtfs "local,path=$state/shared,mount_tag=gauges,security_model=passthrough,id=gauges"
}

system_uuid() {
    uuid_of "$(number_of "$1")" | tr -d -
}

# What an operator sets whose machines are slow: an emulated one needs seconds where others need a tenth of one.
adapt() {
    local file=$state/adapted.toml
    [ "$(cat "$state/processor")" = tcg ] || return 0
    on_host "$1" cat /etc/leasehold/leasehold.toml | sed -e 's/^timeout = .*/timeout = "40s"/' \
        -e 's/^kind = "ipmi"/&\ncipher_suite = 3/' | setting heartbeat interval 500ms | setting heartbeat dead_after 8s |
        setting lease pause 3s | setting fence head_start 4s |
        setting fence probe_interval 10s >"$file"
    on_host "$1" bash -c 'cat >/etc/leasehold/leasehold.toml' <"$file"
}

# Sets a duration in a table of the configuration, which may have neither.
setting() {
    awk -v table="[$1]" -v key="$2" -v line="$2 = \"$3\"" '
        /^\[/ { inside = ($0 == table) }
        inside && $1 == key { next }
        { print }
        $0 == table { print line; found = 1 }
        END { if (!found) print "\n" table "\n" line }'
}

# --- its power ---------------------------------------------------------------------------------------------------------

# Who switches it off while it is switched on finds a machine.
switch_on() {
    (
        flock 7
        if ! is_on "$1"; then
            forget_way_in "$1"
            rm -f "$state/$1/pid"
            setsid "$state/$1/start" 7>&- &
            until_so "the emulator of $1 starts (see $state/$1/qemu.log)" test -s "$state/$1/pid"
        fi
    ) 7>"$state/$1/power-lock"
}

switch_off() {
    local pid
    (
        flock 7
        if pid=$(pid_of "$1"); then
            kill -KILL "$pid"
            while is_on "$1"; do sleep 0.01; done
        fi
        forget_way_in "$1"
    ) 7>"$state/$1/power-lock"
}

stand_still() {
    local signal=CONT
    [ "$2" = no ] || signal=STOP
    kill "-$signal" "$(pid_of "$1")"
}

stands_still() {
    grep -qs '^State:.T' "/proc/$(pid_of "$1")/status"
}

# --- commands ----------------------------------------------------------------------------------------------------------

has_service_manager() {
    on_host "$1" test -e /run/systemd/private
}

# The way in carries the daemon's control socket as well.
run_on() {
    local host=$1 terminal=-T
    shift
    [ ! -t 0 ] || [ ! -t 1 ] || terminal=-t
    # shellcheck disable=SC2034
    way_in=("$terminal" -o ConnectTimeout=3 -o ServerAliveInterval=2 -o ServerAliveCountMax=5 -o StreamLocalBindUnlink=yes
        -L "$state/$host/control.sock:/run/leasehold/control.sock")
    # shellcheck disable=SC2154 # lib.sh has them.
    on "$host" "${surroundings[@]}" "$@"
}

# --- cables and disks --------------------------------------------------------------------------------------------------

# Both of its ends see it.
cable_of() {
    local in=true
    ip -n "$space" link set "$1-$2" "$3"
    [ "$3" = up ] || in=false
    cable "$1" "${2#eth}" "$in"
}

make_disk() {
    on_host "$1" truncate --size=4M /root/small.ext4
    on_host "$1" mkfs.ext4 -q -F /root/small.ext4
    on_host "$1" losetup --find --show /root/small.ext4
}

forget_disk() {
    on_host "$1" losetup --detach "$2"
}

# --- the end -----------------------------------------------------------------------------------------------------------

remove_host() {
    [ ! -e "$state/$1" ] || switch_off "$1"
}
