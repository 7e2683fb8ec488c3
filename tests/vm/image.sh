#!/usr/bin/env bash
# The machine that the virtual laboratory boots: Debian's own kernel unpacked, a small first file system, a root disk, and
# the key for the way in. Built once, kept under target/vm, named by what it is made of. Prints its folder.
#
#   tests/vm/image.sh        (root; some two minutes the first time)
set -euo pipefail

source=$(readlink -f "${BASH_SOURCE[0]}")
cd "$(dirname "$source")/../.."

suite=bookworm
packages=systemd,systemd-sysv,dbus,udev,kmod,iproute2,iputils-ping,procps,nftables,ipmitool
packages+=,nfs-kernel-server,nfs-common,openssh-server,init-system-helpers
# What the services of the laboratory take: see tests/lab/root.sh.
packages+=,libnfs13,libiscsi7,postgresql-15,libfaketime,needrestart
# What an emulated machine needs to get at its root, and what the scenarios need later. Whole folders end with a slash.
first_modules=(virtio_pci virtio_blk crc32c_generic ext4)
modules=("${first_modules[@]}" virtio_net virtio_rng nfsd nfs nfsv3 nfsv4 i6300esb softdog ipmi_si ipmi_devintf 9p 9pnet_virtio loop
    inet_diag tcp_diag udp_diag autofs4 configfs af_packet_diag net/netfilter/ net/ipv4/netfilter/ net/ipv6/netfilter/)

folder=$PWD/target/vm/image-$(sha256sum "$source" | cut -c1-12)
mkdir -p target/vm
# Two that build at once would take each other's half-finished tree.
exec 9>"$folder.lock"
flock 9
if [ -e "$folder/root.ext4" ]; then
    echo "$folder"
    exit
fi

say() {
    echo "vm: image: $*" >&2
}

kernel_package() {
    apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p'
}

# The kernel within the compressed image: emulated, its own unpacking takes six seconds of each start.
unpack_kernel() {
    python3 - "$1" "$2" <<'PYTHON'
import lzma, sys
packed = open(sys.argv[1], "rb").read()
at = packed.find(b"\xfd7zXZ\0")
while at >= 0:
    try:
        kernel = lzma.LZMADecompressor().decompress(packed[at:])
        if kernel[:4] == b"\x7fELF":
            open(sys.argv[2], "wb").write(kernel)
            sys.exit(0)
    except lzma.LZMAError:
        pass
    at = packed.find(b"\xfd7zXZ\0", at + 1)
sys.exit("no XZ-packed kernel in " + sys.argv[1])
PYTHON
}

# The files of modules with all that they need, one a line, each after those that it needs.
files_of() {
    local module
    for module in "$@"; do
        if [[ $module = */ ]]; then
            find "$all_modules/kernel/$module" -name '*.ko' -printf '%f\n' | sed 's/\.ko$//'
        else
            echo "$module"
        fi
    done | while read -r module; do
        modprobe --dirname "$new/kernel" --set-version "$version" --show-depends "$module" 2>/dev/null ||
            grep -qw "$module" "$all_modules/modules.builtin" || say "no module $module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

make_root() {
    mmdebstrap --quiet --variant=minbase --include="$packages" --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$suite" "$new/root" >"$new/mmdebstrap.log" 2>&1 || {
        tail -20 "$new/mmdebstrap.log" >&2
        return 1
    }
}

add_modules() {
    local file
    files_of "${modules[@]}" | while read -r file; do
        install -D -m 0644 "$file" "$new/root/usr/lib/modules/$version/${file#"$all_modules"/}"
    done
    cp "$all_modules"/modules.{builtin,builtin.modinfo,order} "$new/root/usr/lib/modules/$version/"
    depmod --basedir "$new/root" "$version"
}

make_first_root() {
    local file first=$new/first
    mkdir -p "$first"/{bin,proc,sys,dev,root,modules}
    cp "$(command -v busybox)" "$first/bin/busybox"
    # The emulated processor has no instruction for this sum.
    files_of "${first_modules[@]}" | grep -v crc32c-intel >"$new/order"
    while read -r file; do
        cp "$file" "$first/modules/"
        echo "insmod /modules/$(basename "$file")"
    done <"$new/order" >"$new/insmods"
    {
        echo '#!/bin/busybox sh'
        echo '/bin/busybox --install -s /bin'
        echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev'
        cat "$new/insmods"
        echo 'until [ -b /dev/vda ]; do sleep 0.1; done'
        echo 'mount -t ext4 -o rw,noatime /dev/vda /root'
        echo 'umount /proc /sys; mount -o move /dev /root/dev'
        echo 'exec switch_root /root /lib/systemd/systemd'
    } >"$first/init"
    chmod 0755 "$first/init"
    (cd "$first" && find . | cpio --quiet -o -H newc | gzip -1) >"$new/first.gz"
}

# Names and addresses come from the kernel's command line: one disk serves every machine.
furnish() {
    local root=$new/root unit
    : >"$root/etc/machine-id"
    # The second: a folder of this machine, where one is given (tests/lab/machine.sh).
    printf '%s\n' '/dev/vda / ext4 defaults,noatime 0 0' \
        'gauges /srv/gauges 9p trans=virtio,version=9p2000.L,cache=none,nofail,x-mount.mkdir 0 0' >"$root/etc/fstab"
    printf '127.0.0.1 localhost\n192.0.2.1 heron\n192.0.2.2 plover\n192.0.2.3 storage\n' >"$root/etc/hosts"
    install -m 0755 /dev/stdin "$root/usr/local/sbin/addresses" <<'SCRIPT'
#!/bin/sh
number=$(sed -n 's/.*vm\.number=\([0-9]*\).*/\1/p' /proc/cmdline)
set -- "192.0.2.$number/24" "198.51.100.$number/24" "203.0.113.$number/24" "10.97.9.$number/24"
for interface in eth0 eth1 eth2 eth3; do
    if [ -e "/sys/class/net/$interface" ]; then
        ip address add "$1" dev "$interface"
        ip link set "$interface" up
        shift
    fi
done
ip address add "2001:db8::$number/64" dev eth0 nodad
SCRIPT
    cat >"$root/etc/systemd/system/addresses.service" <<'UNIT'
[Unit]
Description=Addresses of this machine
DefaultDependencies=no
After=systemd-udev-settle.service
Wants=systemd-udev-settle.service network.target
Before=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/addresses
[Install]
WantedBy=multi-user.target
UNIT
    ln -s ../addresses.service "$root/etc/systemd/system/multi-user.target.wants/addresses.service"
    # Volatile: the power of these machines is cut. What the kernel says at the end is seen on the serial line.
    mkdir -p "$root/etc/systemd/journald.conf.d"
    printf '[Journal]\nStorage=volatile\n' >"$root/etc/systemd/journald.conf.d/volatile.conf"
    # The way in. No name is looked up, and a login of a person has no greeting.
    printf 'UseDNS no\nUsePAM no\nPermitRootLogin prohibit-password\n' >"$root/etc/ssh/sshd_config.d/way-in.conf"
    ssh-keygen -q -t ed25519 -N '' -C laboratory -f "$new/key"
    install -d -m 0700 "$root/root/.ssh"
    install -m 0600 "$new/key.pub" "$root/root/.ssh/authorized_keys"
    sed 's/^/10.97.9.* /' "$root/etc/ssh/ssh_host_ed25519_key.pub" >"$new/known-hosts"
    # What makes an emulated start longer and serves nobody here. NFS is started by the scenario that wants it.
    for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
        fstrim.timer systemd-tmpfiles-clean.timer getty@tty1.service serial-getty@ttyS0.service getty.target \
        ipmievd.service openipmi.service postgresql.service systemd-binfmt.service systemd-pstore.service systemd-update-utmp.service \
        systemd-update-utmp-runlevel.service systemd-random-seed.service dev-hugepages.mount dev-mqueue.mount \
        sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount modprobe@drm.service \
        modprobe@efi_pstore.service modprobe@fuse.service modprobe@dm_mod.service modprobe@loop.service; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
    for unit in nfs-server rpcbind nfs-client.target rpcbind.socket nfs-blkmap rpc-statd; do
        rm -f "$root"/etc/systemd/system/*.wants/"$unit" "$root"/etc/systemd/system/*.wants/"$unit".service
    done
    ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
}

new=$folder.new
rm -rf --one-file-system "$new"
mkdir -p "$new"
package=$(kernel_package)
version=${package#linux-image-}
all_modules=$new/kernel/lib/modules/$version
say "the kernel, $version"
(cd "$new" && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg-deb -x "$package"_*.deb kernel && rm -f "$package"_*.deb)
unpack_kernel "$new/kernel/boot/vmlinuz-$version" "$new/vmlinux"
depmod --basedir "$new/kernel" "$version"
make_first_root
say "Debian $suite"
make_root
add_modules
furnish
say "the disk"
mkfs.ext4 -q -F -L root -O ^metadata_csum -d "$new/root" "$new/root.ext4" 1400M >/dev/null
echo "$version" >"$new/version"
rm -rf --one-file-system "$new/kernel" "$new/root" "$new/first"
mv "$new" "$folder"
find target/vm -maxdepth 1 -name 'image-*' ! -name "$(basename "$folder")*" -exec rm -rf --one-file-system {} +
du -sm "$folder" | sed 's/^/vm: image: MB /' >&2
echo "$folder"
