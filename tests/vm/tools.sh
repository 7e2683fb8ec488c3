#!/usr/bin/env bash
# Installs what virtual machines need and is missing here:   tests/vm/tools.sh
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

# A program, and the Debian package that has it.
tools() {
    cat <<'LIST'
qemu-system-x86_64 qemu-system-x86
mmdebstrap         mmdebstrap
busybox            busybox-static
modprobe           kmod
cpio               cpio
python3            python3
mkfs.ext4          e2fsprogs
ssh                openssh-client
ip                 iproute2
dpkg-shlibdeps     dpkg-dev
gcc                gcc
LIST
}

missing=()
while read -r program deb; do
    command -v "$program" >/dev/null || missing+=("$deb")
done < <(tools)
if ! command -v qemu-img >/dev/null || ! command -v qemu-system-x86_64 >/dev/null; then
    # One release for both: apt would take qemu-utils from elsewhere, which excludes the emulator.
    missing+=("qemu-utils=$(apt-cache policy qemu-system-x86 | sed -n 's/ *Candidate: //p')" seabios)
fi
[ -e /usr/include/nfsc/libnfs.h ] || missing+=(libnfs-dev)
[ ${#missing[@]} -eq 0 ] || {
    echo "vm: installing ${missing[*]}" >&2
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends --allow-downgrades \
        -o DPkg::Lock::Timeout=300 "${missing[@]}" >/dev/null
}
