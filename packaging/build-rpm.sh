#!/usr/bin/env bash
# Builds the RPM package from a finished release binary, with rpmbuild.
#
#   packaging/build-rpm.sh [--binary PATH] [--out FOLDER] [--keep-root FOLDER] [--compressor NAME]
#
# Prints the path of the package on its last line.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck source=packaging/lib.sh
. packaging/lib.sh
read_options "$@"
out=${out:-target/rpm}
# What every rpm of the last ten years reads.
compressor=${compressor:-w6.xzdio}
architecture=$(uname -m)

stage /usr/lib/systemd/system /usr/share/zsh/site-functions
install -D -m 0644 -t "$root/usr/share/licenses/leasehold" LICENSE-APACHE LICENSE-MIT
install -m 0644 CHANGELOG.md "$root/usr/share/doc/leasehold/CHANGELOG.md"
date_everything

mkdir -p "$out"
changelog="* $(date --date="@$SOURCE_DATE_EPOCH" '+%a %b %d %Y') $maintainer - $version-1"
{
    cat packaging/rpm/leasehold.spec
    printf '\n%%changelog\n%s\n- See CHANGELOG.md.\n' "$changelog"
} >"$scratch/leasehold.spec"
# The name of this machine, its clock and its habits stay out of it.
rpmbuild -bb --quiet --target "$architecture" \
    --define "_topdir $scratch/rpm" --define "_rpmdir $scratch/rpms" --define "_tmppath $scratch" \
    --define "staged $root" --define "scripts $PWD/packaging/rpm" --define "version_given $version" \
    --define "_binary_payload $compressor" \
    --define "_buildhost leasehold.invalid" \
    --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
    "$scratch/leasehold.spec" 2>"$scratch/log" || fail "rpmbuild: $(cat "$scratch/log")"
built=$(find "$scratch/rpms" -name '*.rpm')
mv "$built" "$out/"
echo "$out/${built##*/}"
