# shellcheck shell=bash
# A pair of whole machines, installed from the package in the steps of README.md. The power of each is the life of its
# emulator, which its BMC (ipmi_sim) starts and kills, and which it sees from within as well.

play_pair() {
    ip -n "$space" address add 203.0.113.11/24 dev fence
    ip -n "$space" address add 203.0.113.12/24 dev fence
    local machine
    for machine in heron plover; do
        define "$machine" "$(number_of "$machine")" 320 \
            -chardev "socket,id=bmc,host=127.0.0.1,port=703$(number_of "$machine"),reconnect=1" \
            -device ipmi-bmc-extern,id=bmc0,chardev=bmc -device isa-ipmi-kcs,bmc=bmc0
        make_bmc "$machine"
        await "the BMC of $machine answers" chassis "$machine" status
        chassis "$machine" on >/dev/null
    done
    observe
    for machine in heron plover; do
        until_up "$machine"
        install_package "$machine"
        copy_to "$machine" 0755 /usr/local/bin/gauges <"$state/gauges"
        on "$machine" useradd --system --no-create-home --shell /usr/sbin/nologin gauges
    done
    configure_pair
    for machine in heron plover; do
        on "$machine" systemctl -q enable --now leasehold
    done
    until_serves heron 0
    await "the pair is whole" is_whole
    for machine in heron plover; do
        expect "$machine: leasehold check --live" on "$machine" leasehold check --live
    done
    on heron leasehold status | sed 's/^/    /'
    on heron leasehold check /etc/leasehold/leasehold.toml | grep -E '^  [A-Zρ]+ |begins' | sed 's/^/    /'
    fault "power cut of the primary" cut_power
    fault "hypervisor pause (QMP stop)" pause
    fault "emulator stopped (SIGSTOP)" stand_still
    fault "both links cut" cut_links
    echo '| fault | last line of the old primary, s | the other one serves after, s | token |'
    sed 's/|/ | /g; s/^/| /; s/$/ |/' "$state/figures"
}

number_of() {
    case $1 in
    heron) echo 1 ;;
    plover) echo 2 ;;
    esac
}

make_bmc() {
    local machine=$1 home=$state/bmc-$1 number
    number=$(number_of "$machine")
    mkdir -p "$home/state"
    chmod 0700 "$home"
    (umask 077 && head -c 9 /dev/urandom | base64 >"$home/password")
    printf '%s\n' 'mc_setbmc 0x20' 'mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr' \
        'sel_enable 0x20 1000 0x0a' 'mc_enable 0x20' >"$home/sim.emu"
    cat >"$home/lan.conf" <<CONF
name "$machine"
set_working_mc 0x20
  startlan 1
    addr 203.0.113.1$number 623
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid $(uuid_of "$number" | tr -d -)
  endlan
  serial 15 127.0.0.1 703$number codec VM
  startcmd "$state/$machine/start"
  startnow false
  poweroff_wait 5
  kill_wait 1
  user 1 true "" "test" user 10 none md2 md5 straight
  user 2 true "fence" "$(cat "$home/password")" admin 10 none md2 md5 straight
CONF
    (
        cd "$home"
        exec nsenter --net="/run/netns/$space" -- ipmi_sim -n -c lan.conf -f sim.emu -s state </dev/null >log 2>&1 9>&-
    ) 8>&- &
    companion
}

# chassis NAME status|on|off: as an operator asks the BMC.
chassis() {
    inside ipmitool -I lanplus -C 3 -H "203.0.113.1$(number_of "$1")" -U fence -f "$state/bmc-$1/password" chassis power "$2"
}

# The sample, edited as an operator would: no PDU and no watchdog here, BMCs with a supply of their own, and patience for
# machines that are emulated.
configure_pair() {
    local machine file
    on heron leasehold keygen /etc/leasehold/key >/dev/null
    on heron cat /etc/leasehold/leasehold.toml.example | awk -v RS= -v ORS='\n\n' '!/name = "pdu-/' |
        sed -e 's/^watchdog = "auto"/watchdog = "none"/' -e 's/^privilege = "operator"/&\npower = "independent"/' \
            -e 's/^interval = "250ms"/interval = "500ms"/' -e 's/^dead_after = .*/dead_after = "4s"/' \
            -e 's/^head_start = .*/head_start = "3s"/' -e 's/^pause = .*/pause = "3s"/' |
        copy_to heron 0644 /etc/leasehold/leasehold.toml
    for machine in heron plover; do
        copy_to heron 0600 "/etc/leasehold/bmc-$machine" <"$state/bmc-$machine/password"
    done
    for file in leasehold.toml key bmc-heron bmc-plover; do
        (umask 077 && on heron cat "/etc/leasehold/$file" >"$state/$file")
        copy_to plover 0600 "/etc/leasehold/$file" <"$state/$file"
        rm "$state/$file"
    done
    expect "leasehold check" on heron leasehold check /etc/leasehold/leasehold.toml
}

# --- the faults, each of a primary -------------------------------------------------------------------------------------

cut_power() {
    kill -KILL "$(pid_of "$1")"
}

pause() {
    hypervisor "$1" '{"execute":"stop"}' >/dev/null
}

stand_still() {
    kill -STOP "$(pid_of "$1")"
}

cut_links() {
    cable "$1" 0 false
    cable "$1" 1 false
}

# fault NAME COMMAND: what befalls the primary, until the other one serves under a higher token, or the old one goes on
# alone; then both are whole again.
fault() {
    local name=$1 command=$2 primary token begun served last owner
    primary=$(tail -1 "$state/ledger" | cut -d' ' -f2)
    token=$(last_token)
    begun=$(now_ms)
    "$command" "$primary"
    await "one of both is off: $name" one_is_off
    if is_off "$primary"; then
        owner=$(peer_of "$primary")
        until_serves "$owner" "$token"
        served=$(first_above "$owner" "$token" | cut -d' ' -f1)
        last=$(awk -v node="$primary" -v token="$token" '$2 == node && $3 == token { last = $1 } END { print last }' "$state/ledger")
        [ "$last" -lt "$served" ] || die "$name: $primary served when $owner did"
        printf '%s|%s|%s|%s\n' "$name" "$(seconds $((last - begun)))" "$(seconds $((served - begun)))" "$token to $(last_token)" >>"$state/figures"
        expect "$name: $owner serves after $(seconds $((served - begun))) s, and says why" \
            on "$owner" bash -c "leasehold why | grep -iE 'fenced|power'"
    else
        # It shot first: it goes on.
        owner=$primary
        expect "$name: $owner fenced its peer, and goes on" writes_on "$owner"
        printf '%s|%s|%s|%s\n' "$name" "goes on" "was fenced" "$(last_token)" >>"$state/figures"
    fi
    chassis "$(peer_of "$owner")" status | grep -q off || die "the BMC does not read off"
    judge_ledger || die "the ledger"
    mend "$owner"
}

one_is_off() {
    is_off heron || is_off plover
}

# Lines still arrive from this node.
writes_on() {
    local before
    before=$(wc -l <"$state/ledger")
    await "$1 writes on" bash -c "tail -n +$((before + 1)) '$state/ledger' | grep -q ' $1 '"
}

mend() {
    local owner=$1 off
    off=$(peer_of "$owner")
    cable "$owner" 0 true
    cable "$owner" 1 true
    chassis "$off" on >/dev/null
    until_up "$off"
    await "the pair is whole" is_whole
}
