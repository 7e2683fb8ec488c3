# shellcheck shell=bash
# The gate on a kernel's own NFS server, set up as docs/gate.md says: a fresh server, the keys that may run nothing but the
# gate, and the first take.
#
#   storage  a machine with nfsd, sshd and the gate         heron   a machine
#   plover   this side, at 192.0.2.100                      each asks the gate with a key of its own

# Of the scenario, set by tests/vm/run: its folder and the image.
: "${state:=}" "${image:=}"
shared=/srv/estuary

play_knfsd() {
    define storage 3 384
    define heron 1 256
    power_on storage
    power_on heron
    until_up storage
    until_up heron
    install_package storage
    install_package heron
    set_up_storage
    set_up_plover
    set_up_heron
    first_takes
}

set_up_storage() {
    script_on storage <<SCRIPT
mkdir -p $shared
# Short, or the first file would be opened only after a minute and a half of grace.
printf '[nfsd]\ngrace-time=10\nlease-time=10\n' >/etc/nfs.conf.d/short.conf
cat >/etc/leasehold/gate.toml <<TOML
[[gate]]
name = "estuary"
kind = "knfsd"
paths = ["$shared"]
node = [
    { name = "heron", clients = ["192.0.2.1", "2001:db8::1"] },
    { name = "plover", clients = ["192.0.2.100"] },
]
TOML
systemctl start nfs-server
leasehold gate init --gate estuary
SCRIPT
    say "ok: a gate without a record lets nobody in, and has one now"
}

# Its key, tied to the gate, and the server's own.
set_up_plover() {
    ssh-keygen -q -t ed25519 -N '' -C plover -f "$state/gate-key"
    sed 's/^10.97.9.\*/192.0.2.3/' "$image/known-hosts" >"$state/gate-known-hosts"
    tie_to_gate <"$state/gate-key.pub"
}

set_up_heron() {
    on heron ssh-keygen -q -t ed25519 -N '' -C heron -f /etc/leasehold/gate-key
    copy_to heron 0644 /etc/leasehold/gate-known-hosts <"$state/gate-known-hosts"
    on heron cat /etc/leasehold/gate-key.pub | tie_to_gate
}

tie_to_gate() {
    {
        printf 'restrict,command="/usr/bin/leasehold gate serve" '
        cat
    } | on storage tee -a /root/.ssh/authorized_keys >/dev/null
}

# ask NODE JSON-FIELDS: the gate's answer, over ssh with the key of the node. What the key may run is the server's choice.
ask() {
    local line="{\"version\":1,\"id\":\"x\",\"gate\":\"estuary\",$2}"
    if [ "$1" = heron ]; then
        on heron ssh -T -F /dev/null -i /etc/leasehold/gate-key -o UserKnownHostsFile=/etc/leasehold/gate-known-hosts \
            root@192.0.2.3 id <<<"$line"
    else
        inside ssh -T -F /dev/null -i "$state/gate-key" -o UserKnownHostsFile="$state/gate-known-hosts" \
            root@192.0.2.3 id <<<"$line"
    fi
}

take() {
    ask "$1" "\"op\":\"take\",\"node\":\"$1\",\"token\":$2,\"seen\":$3,\"limit_ms\":60000"
}

# answers WORDS COMMAND…: its one line has all of them.
answers() {
    local words=$1 told
    shift
    told=$("$@") || true
    grep -qE -- "$words" <<<"$told" || {
        echo "$told"
        return 1
    }
}

first_takes() {
    expect "a key runs nothing but the gate" answers '"result":"status"' ask plover '"op":"status"'
    expect "the first take lets heron in" answers '"result":"taken"' take heron 2 0
    expect "who took is in, its peer is not" answers '"heron","state":"admitted".*"plover","state":"excluded"|"plover","state":"excluded".*"heron","state":"admitted"' ask heron '"op":"status"'
}
