#!/usr/bin/env bash
# Builds the Debian package from a finished release binary, with dpkg-deb alone.
#
#   packaging/build-deb.sh [--binary PATH] [--out FOLDER] [--keep-root FOLDER] [--compressor NAME]
#
# Prints the path of the package on its last line.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck source=packaging/lib.sh
. packaging/lib.sh
read_options "$@"
out=${out:-target/debian}
# What every dpkg of the last ten years reads; the laboratory, which builds often, takes a faster one.
compressor=${compressor:-xz}
version=$version-1
architecture=$(dpkg --print-architecture)
doc=$root/usr/share/doc/leasehold

install_debian_files() {
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

# The libraries that the binary is linked against, with the versions whose symbols it uses.
dependencies() {
    mkdir -p "$scratch/shlibs/debian"
    printf 'Source: leasehold\n\nPackage: leasehold\nArchitecture: any\n' >"$scratch/shlibs/debian/control"
    (cd "$scratch/shlibs" && dpkg-shlibdeps -O "$root/usr/bin/leasehold" "$root/usr/libexec/leasehold/leasehold-guard" 2>"$scratch/shlibs/log") |
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

stage /lib/systemd/system /usr/share/zsh/vendor-completions
install_debian_files
write_control
date_everything
mkdir -p "$out"
package=$out/leasehold_${version}_${architecture}.deb
dpkg-deb --root-owner-group "-Z$compressor" --build "$root" "$package" >/dev/null
echo "$package"
