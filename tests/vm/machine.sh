# shellcheck shell=bash
# A virtual machine of a laboratory: made, switched on, commanded. Sourced by tests/vm/run and by the laboratory's own scripts.
#
# Set by them: the folder of the machines, the image, the network namespace in which the bridges are, one for each card.
: "${state:=}" "${image:=}" "${space:=}"
bridges=(lan direct fence control)
# How the disk is cached: by default a machine whose emulator is killed may lose what it flushed.
disk_cache=unsafe
# More for ssh; of two words for the same the first counts.
way_in=()

# The host's own processor where it can be had (a machine that stands still for a moment shows it), else an emulated one.
choose_processor() {
    local status=0
    processor=(--accel "tcg,thread=multi,tb-size=96" -cpu qemu64)
    { timeout 2 qemu-system-x86_64 -M pc --accel kvm -cpu host -nodefaults -display none -S || status=$?; } >/dev/null 2>&1
    # Ended by the time, and by nothing else.
    [ $status -ne 124 ] || processor=(--accel kvm -cpu host)
    say "processors: ${processor[1]%%,*}"
}

# An emulated clock has to go on beside whatever else works here: hence the priority.
# Writes how a machine starts to $state/NAME/start; a BMC runs that file, too. Further arguments are QEMU's.
#   define NAME NUMBER MEMORY_MB ARGUMENT…
define() {
    local machine=$1 number=$2 memory=$3 home=$state/$1 card=0 bridge
    shift 3
    mkdir -p "$home"
    echo "$number" >"$home/number"
    qemu-img create -q -f qcow2 -b "$image/root.ext4" -F raw "$home/disk.qcow2"
    local command=(qemu-system-x86_64 -name "$machine" -M pc "${processor[@]}" -smp 1
        -m "$memory" -nodefaults -no-user-config -display none -uuid "$(uuid_of "$number")"
        -kernel "$image/vmlinux" -initrd "$image/first.gz"
        -append "console=ttyS0 root=/dev/vda rw quiet mitigations=off audit=0 tsc=reliable no_timer_check nowatchdog panic=0 net.ifnames=0 systemd.hostname=$machine vm.number=$number"
        -drive "file=$home/disk.qcow2,if=virtio,format=qcow2,cache=$disk_cache" -device virtio-rng-pci
        -chardev "file,id=serial,path=$home/serial,append=on" -serial chardev:serial
        -qmp "unix:$home/qmp,server=on,wait=off" -qmp "unix:$home/events-line,server=on,wait=off" -pidfile "$home/pid")
    for bridge in "${bridges[@]}"; do
        ip -n "$space" tuntap add "$machine-eth$card" mode tap
        ip -n "$space" link set "$machine-eth$card" master "$bridge" up
        command+=(-netdev "tap,id=net$card,ifname=$machine-eth$card,script=no,downscript=no"
            -device "virtio-net-pci,netdev=net$card,id=card$card,romfile=,mac=52:54:00:00:0$card:0$number")
        card=$((card + 1))
    done
    command+=("$@")
    {
        echo '#!/bin/bash'
        echo "exec 9>&- </dev/null >>$home/qemu.log 2>&1"
        printf 'exec nsenter --net=/run/netns/%s --' "$space"
        printf ' %q' "${command[@]}"
        echo
    } >"$home/start"
    chmod 0755 "$home/start"
}

uuid_of() {
    printf '4c4c4544-0000-4000-8000-00000000000%d' "$1"
}

# By hand, where no BMC does it.
power_on() {
    "$state/$1/start" &
    disown
}

pid_of() {
    local pid
    pid=$(cat "$state/$1/pid" 2>/dev/null) && grep -qzFx -- "$1" "/proc/$pid/cmdline" && echo "$pid"
}

# A zombie has no command line, so that nothing is found in it.
is_on() {
    pid_of "$1" >/dev/null
}

# Asks the emulator, as a hypervisor's own tools do:   hypervisor NAME '{"execute":"stop"}'
hypervisor() {
    python3 - "$state/$1/qmp" "$2" <<'PYTHON'
import json, socket, sys
line = socket.socket(socket.AF_UNIX)
line.settimeout(20)
line.connect(sys.argv[1])
words = line.makefile("rw")
words.readline()
for question in ('{"execute":"qmp_capabilities"}', sys.argv[2]):
    words.write(question + "\n")
    words.flush()
    answer = json.loads(words.readline())
    while "event" in answer:
        answer = json.loads(words.readline())
if "error" in answer:
    sys.exit(str(answer))
print(json.dumps(answer["return"]))
PYTHON
}

# cable NAME CARD true|false: whether it is in.
cable() {
    hypervisor "$1" "{\"execute\":\"set_link\",\"arguments\":{\"name\":\"card$2\",\"up\":$3}}" >/dev/null
}

way_to() {
    echo "10.97.9.$(cat "$state/$1/number")"
}

inside() {
    nsenter --net="/run/netns/$space" -- "$@"
}

# Runs a command on a machine, as root. One connection serves many; it is told again when the machine is another boot.
on() {
    local machine=$1
    shift
    inside ssh "${way_in[@]}" -T -F /dev/null -i "$image/key" -o UserKnownHostsFile="$image/known-hosts" -o ConnectTimeout=20 \
        -o ServerAliveInterval=5 -o ServerAliveCountMax=12 -o ControlMaster=auto -o ControlPersist=600 \
        -o ControlPath="$state/$machine/way-in" -o LogLevel=ERROR "root@$(way_to "$machine")" "$(printf '%q ' "$@")"
}

# A machine that was reset, or stands still, does not answer on the old connection.
forget_way_in() {
    ssh -O exit -o ControlPath="$state/$1/way-in" nobody >/dev/null 2>&1 || true
}

is_reachable() {
    forget_way_in "$1"
    on "$1" true
}
