# shellcheck shell=bash disable=SC2016,SC2001 # awk, sed and dpkg have their own signs for values
# The gate on a kernel's own NFS server, set up as docs/gate.md says.
#
#   storage  a machine with nfsd, sshd and the gate         heron   a machine whose kernel mounts the export
#   plover   this side: libnfs, from 192.0.2.100            each asks the gate with a key of its own
#
# Each take revokes a node that writes without a pause. Judged is what the server's disk has, by the server's clock, not what
# the writer believes: the time of the file's last change, against the moment at which the gate's answer left.

# Of the scenario, set by tests/vm/run and tests/vm/lib.sh: its folder, the image, and how long a wait may take.
: "${state:=}" "${image:=}" "${patience:=}"
shared=/srv/estuary

play_knfsd() {
    gcc -O1 -Wall -Werror -o "$state/writer" tests/agents_nfs/writer.c -lnfs
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
        revoke_kernel_client "$version" 192.0.2.3
    done
    revoke_kernel_client 4.2 '[2001:db8::3]'
    revoke_libnfs
    tokens_are_kept
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

# What the key runs is the gate, and a note of when its answer left.
tie_to_gate() {
    copy_to storage 0755 /usr/local/sbin/gate-with-a-clock <<'SCRIPT'
#!/bin/bash
/usr/bin/leasehold gate serve | while IFS= read -r line; do
    echo "$EPOCHREALTIME" >/run/answered
    printf '%s\n' "$line"
done
SCRIPT
    {
        printf 'restrict,command="/usr/local/sbin/gate-with-a-clock" '
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
    echo $(($2 + 1 + ($1 + $2 + 1) % 2))
}

# Numbers of the server's NFSv4 clients that come from heron.
clients_of_heron() {
    on storage bash -c "cd /proc/fs/nfsd/clients && grep -lE 'address: \"(192.0.2.1|\[2001:db8::1\]):' */info 2>/dev/null | cut -d/ -f1 | tr '\n' ' '"
}

# Milliseconds from a file's last change to the gate's last answer, on the server: negative where a write landed after it.
ms_before_answer() {
    # shellcheck disable=SC2016 # for awk
    on storage awk -v wrote="$(on storage stat --format=%.9Y "$shared/$1")" '{ printf "%d\n", ($1 - wrote) * 1000 }' /run/answered
}

# judge FILE CLIENT TOOK_MS: its writer has seen an error, and nothing of it landed after the answer.
judge() {
    local blocks before
    blocks=$(($(size_of "$1") / 512))
    before=$(ms_before_answer "$1")
    [ "$before" -gt 0 ] || die "$2: a block landed $((-before)) ms after the answer"
    say "ok: $2: $blocks blocks landed, the last one $before ms before the answer, which took $3 ms"
    echo "$2|$blocks|$before|$3" >>"$state/figures"
}

# revoke_kernel_client VERSION SERVER: the node's kernel holds a file open and writes to it: the take of plover ends that.
revoke_kernel_client() {
    local version=$1 server=$2 file began took clients
    file=heron-$version-$(tr -dc 'a-z0-9' <<<"$server")
    take_next heron
    script_on heron <<SCRIPT
mount -t nfs -o $(mount_options "$version") $server:$shared /mnt/estuary
(dd if=/dev/zero of=/mnt/estuary/$file bs=512 oflag=dsync 2>/run/$file || echo "status \$?" >>/run/$file) </dev/null >/dev/null 2>&1 &
SCRIPT
    await "heron writes over NFSv$version" has_grown "$file" 20480
    clients=$(clients_of_heron)
    began=$(now_ms)
    take_next plover
    took=$(($(now_ms) - began))
    await "heron's writer sees an error" on heron grep -q '^status 1' "/run/$file"
    judge "$file" "Linux, NFSv$version, $server" "$took"
    say "    heron: $(on heron grep error "/run/$file" | head -1)"
    [ "$version" = 3 ] || expect "its NFSv4 clients (${clients:-none}) are expired" are_gone "$clients"
    expect_failure "it cannot mount again" 'No such file|denied|not permitted' \
        on heron bash -c "umount -f -l /mnt/estuary; mount -t nfs -o $(mount_options "$version") $server:$shared /mnt/estuary"
}

# Neither waits for ever: a writer that is shut out has to say so.
mount_options() {
    echo "vers=$1,nolock,soft,timeo=50,retrans=1"
}

# The node takes, as its agent does it: with what it has seen, by a token that it mints, and again while it is not proven.
take_next() {
    local stored token end=$((SECONDS + patience))
    stored=$(highest)
    token=$(next_token "$([ "$1" = heron ] && echo 0 || echo 1)" "$stored")
    until answers '"result":"taken"' take "$1" "$token" "$stored"; do
        [ $SECONDS -lt $end ] || die "$1 cannot take"
    done
}

# The very state of which the numbers spoke: a client that comes back gets a new one.
are_gone() {
    local number
    [ -n "$1" ] || return 1
    for number in $1; do
        on storage test ! -e "/proc/fs/nfsd/clients/$number" || return 1
    done
}

# The other way round, with a client that takes every error at its word; heron, which takes, goes on.
revoke_libnfs() {
    local took began
    take_next plover
    inside "$state/writer" 192.0.2.3 "$shared" /plover-1 1000000 >"$state/writer.log" &
    companion
    await "plover writes" has_grown plover-1 20480
    began=$(now_ms)
    take_next heron
    took=$(($(now_ms) - began))
    await "plover's writer sees an error" grep -q '^mount' "$state/writer.log"
    judge plover-1 "libnfs, NFSv4.0" "$took"
    say "    plover: $(tail -2 "$state/writer.log" | tr '\n' ' ')"
    grep -q '^mount -' "$state/writer.log" || die "plover was let in again"
    expect "the survivor writes" on heron bash -c "mount -t nfs -o $(mount_options 4.2) 192.0.2.3:$shared /mnt/estuary &&
        dd if=/dev/zero of=/mnt/estuary/survivor bs=512 count=50 oflag=dsync && umount /mnt/estuary"
}

tokens_are_kept() {
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
    for door in "*:$shared" "@hosts:$shared" "192.0.2.0/24:$shared" "[2001:db8::]/64:$shared" "*.example.com:/srv" \
        "heron:/srv"; do
        door_is_found "exportfs -o rw,no_subtree_check '$door'" "exportfs -u '$door'" "$door"
    done
    door_is_found "echo '$shared 192.0.2.0/28(rw)' >/etc/exports" ": >/etc/exports" "a line of /etc/exports"
    door_is_found "echo '/srv 2001:DB8:0:0::1(rw)' >/etc/exports.d/other.exports" "rm /etc/exports.d/other.exports" \
        "another spelling in /etc/exports.d"
    # Whatever means heron's addresses and nothing more is the gate's own business.
    on storage exportfs -o rw,no_subtree_check "[2001:DB8:0::0:1]:$shared" "heron:$shared"
    expect "another spelling of heron's address, and its name, are there" \
        on storage bash -c 'exportfs -v | grep -qi 2001:db8 && exportfs -v | grep -qw heron'
    take_next plover
    expect "and are removed" on storage bash -c '! exportfs -v | grep -qiE "2001:db8|heron"'
}

# door_is_found OPEN SHUT WHAT
door_is_found() {
    local told stored
    on storage bash -c "$1"
    stored=$(highest)
    told=$(take plover "$(next_token 1 "$stored")" "$stored")
    on storage bash -c "$2"
    grep -q '"result":"unverified"' <<<"$told" || die "open for heron by $3, and yet: $told"
    told=${told#*'"heron","state":"unknown","why":"'}
    say "ok: $3 is found: ${told%%\"*}"
}

survives_restart() {
    take_next plover
    on storage exportfs -ra
    expect "heron stays out after exportfs -ra" answers '"heron","state":"excluded"' ask plover '"op":"status"'
    on storage systemctl restart nfs-server
    expect "and after a restart of the server" answers '"heron","state":"excluded"' ask plover '"op":"status"'
    expect "which lets plover in" answers '"plover","state":"admitted"' ask plover '"op":"status"'
    expect "for real" writes_again plover-3
}

# The agents, as docs/agents/nfs-export.md configures them, asked by the program on heron.
through_the_agent() {
    # shellcheck disable=SC2016 # fences of Markdown
    sed -n '/^```toml$/,/^```$/p' docs/agents/nfs-export.md | sed '/^```/d; s/192\.0\.2\.31/192.0.2.3/' >"$state/agents.toml"
    {
        cat <<'TOML'
[cluster]
name = "estuary"
key = "/etc/leasehold/key"
data = "shared"
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
    on heron leasehold check --live >"$state/live" 2>&1 || die "leasehold check --live: $(cat "$state/live")"
    say "ok: leasehold check --live: both agents reach the gate"
    sed -n '/^agent /,$s/^/    /p' "$state/live"
}

figures() {
    # shellcheck disable=SC2016 # for dpkg-query
    say "Linux $(on storage uname -r), nfs-utils $(on storage dpkg-query --show '--showformat=${Version}' nfs-kernel-server)"
    echo '| client | blocks of 512 bytes | from the last one to the answer, ms | take, asked for over ssh, ms |'
    echo '| --- | --- | --- | --- |'
    sed 's/|/ | /g; s/^/| /; s/$/ |/' "$state/figures"
}
