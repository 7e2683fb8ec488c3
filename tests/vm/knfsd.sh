# shellcheck shell=bash
# The gate on a kernel's own NFS server, set up as docs/gate.md says.
#
#   storage  a machine with nfsd, sshd and the gate         heron   a machine whose kernel mounts the export
#   plover   this side: libnfs, from 192.0.2.100            each asks the gate with a key of its own
#
# Each take revokes a node that writes without a pause. Judged is what the server's disk has, not what the writer believes.

shared=/srv/estuary

play_knfsd() {
    gcc -O1 -Wall -Werror -o "$state/writer" "$vm_root/../agents_nfs/writer.c" -lnfs
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
    local version
    for version in 4.2 4.0 3; do
        revoke_kernel_client "$version"
    done
    revoke_libnfs
    doors_are_found
    survives_restart
    through_the_agent
    figures
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
    on heron mkdir -p /mnt/estuary
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

# Bytes of a file, as the server's disk has them.
size_of() {
    on storage stat --format=%s "$shared/$1" 2>/dev/null || echo 0
}

has_grown() {
    [ "$(size_of "$1")" -gt "$2" ]
}

highest() {
    ask plover '"op":"highest"' | sed 's/.*"highest":\([0-9]*\).*/\1/'
}

# One that the node mints: even for heron, odd for plover, above what is stored.
next_token() {
    local stored
    stored=$(highest)
    echo $((stored + 1 + ($1 + stored + 1) % 2))
}

# Numbers of the server's NFSv4 clients that come from an address.
clients_from() {
    on storage bash -c "cd /proc/fs/nfsd/clients && grep -l 'address: \"$1:' */info | cut -d/ -f1 | tr '\n' ' '"
}

# The node's kernel holds a file open and writes to it: the take of plover ends that.
revoke_kernel_client() {
    local version=$1 file=heron-$1 stored token before after clients answer began took
    stored=$(highest)
    answers '"result":"taken"' take heron "$(next_token 0)" "$stored" >/dev/null || die "heron cannot take"
    script_on heron <<SCRIPT
mount -t nfs -o vers=$version,nolock,soft,timeo=100,retrans=1 192.0.2.3:$shared /mnt/estuary
(dd if=/dev/zero of=/mnt/estuary/$file bs=512 oflag=dsync >/run/writer-$version 2>&1; echo "status \$?" >>/run/writer-$version) </dev/null >/dev/null 2>&1 &
SCRIPT
    await "heron writes over NFSv$version" has_grown "$file" 20480
    clients=$(clients_from 192.0.2.1)
    stored=$(highest)
    token=$(next_token 1)
    began=$(now_ms)
    answer=$(take plover "$token" "$stored")
    took=$(($(now_ms) - began))
    before=$(size_of "$file")
    grep -q '"result":"taken"' <<<"$answer" || die "plover cannot take: $answer"
    await "heron's writer sees an error" on heron grep -q '^status 1' "/run/writer-$version"
    after=$(size_of "$file")
    [ "$before" = "$after" ] || die "NFSv$version: $((after - before)) bytes landed after the answer"
    say "ok: NFSv$version: $((before / 512)) blocks landed, none of them after the answer; the answer took $took ms"
    say "    heron: $(on heron grep -v records "/run/writer-$version" | head -1)"
    echo "NFSv$version, Linux client|$((before / 512))|0|$took" >>"$state/figures"
    if [ -n "$clients" ]; then
        expect "its NFSv4 clients ($clients) are expired" are_gone "$clients"
    fi
    expect_failure "it cannot mount again" 'No such file|denied|not permitted|access' \
        on heron bash -c "umount -f -l /mnt/estuary; mount -t nfs -o vers=$version,nolock,soft,timeo=50,retrans=1 192.0.2.3:$shared /mnt/estuary"
}

# The very state of which the numbers spoke: a client that comes back gets a new one.
are_gone() {
    local number
    for number in $1; do
        on storage test ! -e "/proc/fs/nfsd/clients/$number" || return 1
    done
}

# The other way round, with a client that takes every error at its word; heron, which takes, goes on.
revoke_libnfs() {
    local stored before after took began
    stored=$(highest)
    answers '"result":"taken"' take plover "$(next_token 1)" "$stored" >/dev/null || die "plover cannot take"
    nsenter --net="/run/netns/$space" -- "$state/writer" 192.0.2.3 "$shared" /plover-1 1000000 >"$state/writer.log" &
    companion
    await "plover writes" has_grown plover-1 20480
    stored=$(highest)
    began=$(now_ms)
    answers '"result":"taken"' take heron "$(next_token 0)" "$stored" >/dev/null || die "heron cannot take"
    took=$(($(now_ms) - began))
    before=$(size_of plover-1)
    await "plover's writer sees an error" grep -q '^mount' "$state/writer.log"
    after=$(size_of plover-1)
    [ "$before" = "$after" ] || die "libnfs: $((after - before)) bytes landed after the answer"
    say "ok: libnfs: $((before / 512)) blocks landed, none of them after the answer: $(tail -2 "$state/writer.log" | tr '\n' ' ')"
    grep -q '^mount -' "$state/writer.log" || die "plover was let in again"
    echo "NFSv4.0, libnfs|$((before / 512))|0|$took" >>"$state/figures"
    expect "the survivor writes" on heron bash -c "mount -t nfs -o vers=4.2,nolock 192.0.2.3:$shared /mnt/estuary && dd if=/dev/zero of=/mnt/estuary/survivor bs=512 count=50 oflag=dsync && umount /mnt/estuary"
    expect "a stale token is refused, and the highest named" answers "\"result\":\"refused\",\"highest\":$(highest)" take plover 3 2
    expect "the owner lets its peer in again" answers '"result":"released"' \
        ask heron "\"op\":\"release\",\"node\":\"heron\",\"token\":$(highest)"
    expect "plover writes again" writes_again plover-2
}

writes_again() {
    inside "$state/writer" 192.0.2.3 "$shared" "/$1" 20 | tee "$state/again.log"
    grep -q '^done 0' "$state/again.log"
}

# Whatever else lets heron in: the take of plover is stored, and not proven.
doors_are_found() {
    local door
    for door in "*:$shared" "@hosts:$shared" "192.0.2.0/24:$shared" "[2001:db8::]/64:$shared" "heron:$shared" \
        "*.example.com:/srv"; do
        door_is_found "exportfs -o rw,no_subtree_check '$door'" "exportfs -u '$door'" "$door"
    done
    door_is_found "echo '$shared 192.0.2.0/28(rw)' >/etc/exports" ": >/etc/exports" "a line of /etc/exports"
    door_is_found "echo '/srv 2001:DB8:0:0::1(rw)' >/etc/exports.d/other.exports" "rm /etc/exports.d/other.exports" \
        "another spelling in /etc/exports.d"
    # An exact other spelling of an address of the node is the gate's own business.
    on storage exportfs -o rw,no_subtree_check "[2001:DB8:0::0:1]:$shared"
    expect "another spelling of heron's address is removed" answers '"result":"taken"' take plover "$(next_token 1)" "$(highest)"
    expect "and is gone" on storage bash -c '! exportfs -v | grep -qi 2001:db8'
}

door_is_found() {
    local told
    on storage bash -c "$1"
    told=$(take plover "$(next_token 1)" "$(highest)")
    on storage bash -c "$2"
    grep -q '"result":"unverified"' <<<"$told" || die "open for heron by $3, and yet: $told"
    say "ok: $3 is found: $(sed 's/.*"heron","state":"unknown","why":"\([^"]*\)".*/\1/' <<<"$told" | cut -c1-150)"
}

survives_restart() {
    expect "plover owns it, with all doors closed" answers '"result":"taken"' take plover "$(next_token 1)" "$(highest)"
    on storage exportfs -ra
    expect "heron stays out after exportfs -ra" answers '"heron","state":"excluded"' ask plover '"op":"status"'
    on storage systemctl restart nfs-server
    expect "and after a restart of the server" answers '"heron","state":"excluded"' ask plover '"op":"status"'
    expect "which lets plover in" answers '"plover","state":"admitted"' ask plover '"op":"status"'
}

# The agents, as docs/agents/nfs-export.md configures them, asked by the program on heron.
through_the_agent() {
    sed -n '/^```toml$/,/^```$/p' "$vm_root/../../docs/agents/nfs-export.md" | sed '/^```/d; s/192\.0\.2\.31/192.0.2.3/' >"$state/agents.toml"
    {
        cat <<'TOML'
[cluster]
name = "estuary"
key = "/etc/leasehold/key"
[[node]]
name = "heron"
[[node]]
name = "plover"
[[link]]
name = "lan"
addresses = { heron = "192.0.2.1", plover = "192.0.2.100" }
TOML
        cat "$state/agents.toml"
        printf '[[resource]]\nname = "data"\nkind = "exec"\nstart = ["/usr/bin/sleep", "1000000"]\n'
    } | copy_to heron 0644 /etc/leasehold/leasehold.toml
    on heron leasehold keygen /etc/leasehold/key >/dev/null
    expect "leasehold check --live: both agents reach the gate" live_check
    on heron leasehold check --live | sed 's/^/    /' | head -20
}

live_check() {
    on heron leasehold check --live
}

figures() {
    say "Linux $(on storage uname -r), nfs-utils $(on storage dpkg-query --show '--showformat=${Version}' nfs-kernel-server)"
    echo '| client | blocks of 512 bytes | after the answer | answer, ms |'
    sed 's/|/ | /g; s/^/| /; s/$/ |/' "$state/figures"
}
