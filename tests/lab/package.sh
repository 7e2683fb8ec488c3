#!/usr/bin/env bash
# The package that the laboratory installs, built from a finished binary, and kept while that stays the same.
#
#   tests/lab/package.sh [--binary PATH] [--next]
#
# Without --binary: the release binary if there is one, else the debug one. --next gives the same files under a higher
# version, for upgrades. Prints the path of the package.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

binary=target/release/leasehold
[ -x "$binary" ] || binary=target/debug/leasehold
next=false
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$2 && shift ;;
    --next) next=true ;;
    *) echo "package.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift
done

[ -x "$binary" ] || { echo "package.sh: no $binary: run cargo build" >&2 && exit 1; }
# What goes into the package besides the binary belongs to its name, too.
digest=$({ cat "$binary" "$(dirname "$binary")/leasehold-guard" config/leasehold.toml README.md CHANGELOG.md docs/*.md && find packaging systemd -type f | sort | xargs cat; } | sha256sum | cut -c1-12)
folder=$PWD/target/lab/deb/$digest
mkdir -p target/lab/deb
exec 9>"target/lab/deb/$digest.lock"
flock 9
if [ ! -e "$folder/first" ]; then
    # The packages of earlier builds are of no use to anybody.
    find target/lab/deb -mindepth 1 -maxdepth 1 -type d -mmin +60 -exec rm -rf {} +
    rm -rf "$folder"
    built=$(packaging/build-deb.sh --binary "$binary" --out "$folder" --compressor gzip | tail -1)
    ln -s "$(basename "$built")" "$folder/first"
fi
first=$folder/$(readlink "$folder/first")
if ! $next; then
    echo "$first"
    exit
fi
if [ ! -e "$folder/next.deb" ]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    dpkg-deb --raw-extract "$first" "$scratch/root"
    sed -i 's/^Version: .*/&+next/' "$scratch/root/DEBIAN/control"
    dpkg-deb --root-owner-group -Zgzip -z1 --build "$scratch/root" "$folder/next.new" >/dev/null
    mv "$folder/next.new" "$folder/next.deb"
fi
echo "$folder/next.deb"
