#!/usr/bin/env bash
# Installs, reinstalls, removes and purges the package on a throw-away layer over this machine, and looks at what it did.
#
#   packaging/try-install.sh PACKAGE        (root; the machine itself stays as it is)
# shellcheck disable=SC2016 # What `expect` is given is expanded by the shell inside.
set -euo pipefail

if [ "${LEASEHOLD_TRIAL:-}" != inside ]; then
    package=$(realpath "$1")
    layer=$(mktemp -d)
    trap 'rm -rf --one-file-system "$layer"' EXIT
    mkdir "$layer/root"
    LEASEHOLD_TRIAL=inside unshare --mount --propagation private "$(realpath "$0")" "$package" "$layer"
    exit
fi

package=$1
layer=$2
# The upper folder of an overlay cannot lie on an overlay, which the machine's own root may be.
mount -t tmpfs tmpfs "$layer"
mkdir "$layer/root" "$layer/upper" "$layer/work" "$layer/pool"
cp "$package" "$layer/pool/"
mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
mkdir -p "$layer/root/pool"
mount --bind "$layer/pool" "$layer/root/pool"
mount -t proc proc "$layer/root/proc"
mount -t devtmpfs devtmpfs "$layer/root/dev" 2>/dev/null || mount --rbind /dev "$layer/root/dev"

inside() {
    chroot "$layer/root" "$@"
}

expect() {
    inside sh -c "$1" || {
        echo "try-install: after $stage: does not hold: $1" >&2
        exit 1
    }
}

stage=installation
inside dpkg --install "/pool/$(basename "$package")"
expect 'test -x /usr/bin/leasehold'
expect 'test -e /etc/leasehold/leasehold.toml.example'
expect '! test -e /etc/leasehold/leasehold.toml'
for file in bash-completion/completions/leasehold zsh/vendor-completions/_leasehold fish/vendor_completions.d/leasehold.fish; do
    expect "test -s /usr/share/$file"
done
expect 'grep -qx "disable leasehold.service" /usr/lib/systemd/system-preset/50-leasehold.preset'
expect 'test -e /usr/share/man/man5/leasehold.toml.5.gz'
expect '! test -e /etc/systemd/system/multi-user.target.wants/leasehold.service'
inside systemctl enable leasehold.service
expect 'test -e /etc/systemd/system/multi-user.target.wants/leasehold.service'
inside sh -c 'echo edited >/etc/leasehold/leasehold.toml; mkdir -p /var/lib/leasehold; echo 1 >/var/lib/leasehold/record'

stage=reinstallation
inside chmod 0700 /etc/leasehold
inside dpkg --install "/pool/$(basename "$package")"
expect 'grep -q edited /etc/leasehold/leasehold.toml'
expect 'test "$(stat -c %a /etc/leasehold)" = 700'

stage=removal
inside dpkg --remove leasehold | tee "$layer/said"
grep -q '/var/lib/leasehold stays' "$layer/said"
expect '! test -e /usr/bin/leasehold'
expect '! test -L /etc/systemd/system/multi-user.target.wants/leasehold.service'
expect 'test -e /var/lib/leasehold/record'

stage=purge
inside dpkg --purge leasehold | tee "$layer/said"
grep -q 'removes /var/lib/leasehold' "$layer/said"
grep -q 'keeps what you made in /etc/leasehold' "$layer/said"
expect '! test -e /var/lib/leasehold'
expect 'grep -q edited /etc/leasehold/leasehold.toml'
echo "installed, reinstalled, removed and purged as it should"
