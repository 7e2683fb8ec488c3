# shellcheck shell=bash
# What is seen from outside, by the clock of this machine: every line of the service with its token, every reset of an
# emulator. The judge believes nothing else.

# Of the scenario, set by tests/vm/run and tests/vm/lib.sh: its folder, the package, the network's name.
: "${state:=}" "${package:=}" "${space:=}"

# Each line of the service as "MILLISECONDS NODE TOKEN COUNTER", by the clock of this machine.
observe() {
    leasehold_here keygen "$state/cluster-key" >/dev/null
    cat >"$state/gauges" <<'SCRIPT'
#!/bin/bash
# Ten lines a second to the observer, with the token of whoever started this.
n=0
exec 3>/dev/udp/10.97.9.254/7000
while :; do
    n=$((n + 1))
    echo "$HOSTNAME $LEASEHOLD_TOKEN $n" >&3
    sleep 0.1
done
SCRIPT
    # shellcheck disable=SC2016 # it is Python
    nsenter --net="/run/netns/$space" -- python3 -c '
import socket, sys, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind(("10.97.9.254", 7000))
with open(sys.argv[1], "w", buffering=1) as ledger:
    while True:
        told = line.recv(200).decode().strip()
        ledger.write(f"{time.time_ns() // 1000000} {told}\n")
' "$state/ledger" &
    companion
}

# The package's own program, on this machine.
leasehold_here() {
    [ -e "$state/here/usr/bin/leasehold" ] || dpkg-deb --extract "$package" "$state/here"
    "$state/here/usr/bin/leasehold" "$@"
}

last_token() {
    tail -1 "$state/ledger" | cut -d' ' -f3
}

# The first line of a node above a token, if there is one.
first_above() {
    awk -v node="$1" -v token="$2" '$2 == node && $3 + 0 > token + 0 { print; exit 0 }' "$state/ledger" | grep .
}

until_serves() {
    await "$1 serves above token $2" first_above "$1" "$2"
    say "$1 serves with token $(first_above "$1" "$2" | cut -d' ' -f3)"
}

# Events of the emulator, one a line: "MILLISECONDS EVENT".
watch_resets() {
    python3 -c '
import json, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
words = line.makefile("rw")
words.readline()
words.write("{\"execute\":\"qmp_capabilities\"}\n")
words.flush()
with open(sys.argv[2], "a", buffering=1) as log:
    for word in words:
        event = json.loads(word)
        if "event" in event:
            at = event["timestamp"]
            log.write("%d %s %s\n" % (at["seconds"] * 1000 + at["microseconds"] // 1000, event["event"], json.dumps(event.get("data", {}))))
' "$state/$1/events-line" "$state/$1/events" &
    companion
}

# No two nodes ever acted at once, by what arrived here: tokens rise, and a node is not heard again under an old one.
judge_ledger() {
    awk '{ if ($3 + 0 < highest) { print "a late line: " $0; bad = 1 } if ($3 + 0 > highest) highest = $3 + 0
           if (($3 in owner) && owner[$3] != $2) { print "two nodes with one token: " $0; bad = 1 } owner[$3] = $2 }
         END { exit bad }' "$state/ledger"
}

seconds() {
    printf '%s%d.%d' "$([ "$1" -ge 0 ] || echo -)" $((${1#-} / 1000)) $((${1#-} % 1000 / 100))
}

peer_of() {
    [ "$1" = heron ] && echo plover || echo heron
}

is_whole() {
    on heron leasehold status --json | grep -q '"answer": *"yes"' || on plover leasehold status --json | grep -q '"answer": *"yes"'
}
