#!/usr/bin/env bash
# Builds the Debian package from a finished release binary, with dpkg-deb alone.
#
#   packaging/build-deb.sh [--binary PATH] [--out FOLDER] [--keep-root FOLDER] [--compressor NAME]
#
# The same commit and toolchain give the same bytes: times come from the commit, owners are root, the order is dpkg-deb's.
# Prints the path of the package on its last line.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
binary=target/release/leasehold
out=target/debian
root=
# What every dpkg of the last ten years reads; the laboratory, which builds often, takes a faster one.
compressor=xz

fail() {
    echo "build-deb: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || fail "usage: build-deb.sh [--binary PATH] [--out FOLDER] [--keep-root FOLDER] [--compressor NAME]"
    case "$1" in
    --binary) binary=$2 ;;
    --out) out=$2 ;;
    --keep-root) root=$2 ;;
    --compressor) compressor=$2 ;;
    *) fail "unknown option $1" ;;
    esac
    shift 2
done

[ -x "$binary" ] || fail "$binary is missing: run cargo build --release --locked first"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$(realpath -m "${root:-$scratch/root}")
rm -rf "$root"

# Outside a git checkout the changelog has to date the package.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
fi
export SOURCE_DATE_EPOCH
export LC_ALL=C TZ=UTC
umask 022

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)-1
maintainer=$(sed -n 's/^Maintainer: //p' packaging/control.in)
architecture=$(dpkg --print-architecture)
doc=$root/usr/share/doc/leasehold

install_files() {
    install -D -m 0755 "$binary" "$root/usr/bin/leasehold"
    strip --remove-section=.comment --remove-section=.note "$root/usr/bin/leasehold"
    install -D -m 0644 -t "$root/lib/systemd/system" systemd/*.service systemd/*.socket
    install -D -m 0644 packaging/leasehold.default "$root/etc/default/leasehold"
    # Never installed under the name that the daemon reads: it has to be edited first.
    install -D -m 0644 config/leasehold.toml "$root/etc/leasehold/leasehold.toml.example"
    install -D -m 0644 config/leasehold.toml "$doc/examples/leasehold.toml"
    install -m 0644 packaging/postgres/leasehold.sql "$doc/examples/leasehold.sql"
    install -D -m 0644 README.md "$doc/README.md"
    install -m 0644 docs/*.md "$doc"
    install -D -m 0644 packaging/copyright "$doc/copyright"
    install -D -m 0644 CHANGELOG.md "$doc/changelog"
    debian_changelog >"$doc/changelog.Debian"
    gzip -9n "$doc/changelog" "$doc/changelog.Debian"
}

# What changed stands in CHANGELOG.md; Debian's tools want the version and its date in their own form.
debian_changelog() {
    printf 'leasehold (%s) stable; urgency=medium\n\n  * See changelog.gz.\n\n' "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(date --rfc-email --date="@$SOURCE_DATE_EPOCH")"
}

# Written by the program itself, so that pages and options cannot drift apart.
install_pages() {
    mkdir "$scratch/man"
    "$binary" man "$scratch/man"
    [ -e "$scratch/man/leasehold.8" ] || fail "'leasehold man FOLDER' wrote no leasehold.8"
    local page
    for page in "$scratch"/man/*.[1-8]; do
        install -D -m 0644 "$page" "$root/usr/share/man/man${page##*.}/${page##*/}"
    done
    find "$root/usr/share/man" -type f -exec gzip -9n {} +
}

install_completions() {
    local share=$root/usr/share
    mkdir -p "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
    "$binary" completions bash >"$share/bash-completion/completions/leasehold"
    "$binary" completions zsh >"$share/zsh/vendor-completions/_leasehold"
    "$binary" completions fish >"$share/fish/vendor_completions.d/leasehold.fish"
    [ -s "$share/bash-completion/completions/leasehold" ] || fail "'leasehold completions bash' wrote nothing"
}

# The libraries that the binary is linked against, with the versions whose symbols it uses.
dependencies() {
    mkdir -p "$scratch/shlibs/debian"
    printf 'Source: leasehold\n\nPackage: leasehold\nArchitecture: any\n' >"$scratch/shlibs/debian/control"
    (cd "$scratch/shlibs" && dpkg-shlibdeps -O "$root/usr/bin/leasehold" 2>"$scratch/shlibs/log") |
        sed -n 's/^shlibs:Depends=//p'
}

write_control() {
    local depends size
    depends=$(dependencies)
    [ -n "$depends" ] || fail "dpkg-shlibdeps found no dependencies: $(cat "$scratch/shlibs/log")"
    size=$(du -k -s --apparent-size "$root" | cut -f1)
    mkdir -p "$root/DEBIAN"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@DEPENDS@/$depends/" -e "s/@SIZE@/$size/" \
        packaging/control.in >"$root/DEBIAN/control"
    (cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$root/DEBIAN/conffiles"
    (cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    local script
    for script in postinst prerm postrm; do
        install -m 0755 "packaging/$script" "$root/DEBIAN/$script"
    done
}

install_files
install_pages
install_completions
write_control
# A file that is younger than its commit would carry the time of this build into the package.
find "$root" -depth -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$out"
package=$out/leasehold_${version}_${architecture}.deb
dpkg-deb --root-owner-group "-Z$compressor" --build "$root" "$package" >/dev/null
echo "$package"
