# shellcheck shell=bash
# What both packages are made of. Sourced by build-deb.sh and build-rpm.sh, from the top of the project; never run.
#
# The same commit and toolchain give the same bytes: times come from the commit, owners are root, the order is the tool's.

# shellcheck disable=SC2034 # What is set here is used by those who source it.
binary=target/release/leasehold
out=
root=
compressor=
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

read_options() {
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || fail "usage: ${0##*/} [--binary PATH] [--out FOLDER] [--keep-root FOLDER] [--compressor NAME]"
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
    guard=$(dirname "$binary")/leasehold-guard
    [ -x "$guard" ] || fail "$guard is missing: it is built with leasehold, and has to lie beside it"
    root=$(realpath -m "${root:-$scratch/root}")
    rm -rf "$root"
    # Outside a git checkout the changelog has to date the package.
    if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
        SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
    fi
    export SOURCE_DATE_EPOCH
    export LC_ALL=C TZ=UTC
    umask 022
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
    maintainer=$(sed -n 's/^Maintainer: //p' packaging/control.in)
}

# Everything that both have, below $root; units and zsh completions lie where the distribution keeps them.
stage() {
    local units=$root$1 zsh=$root$2 doc=$root/usr/share/doc/leasehold
    install -D -m 0755 "$binary" "$root/usr/bin/leasehold"
    # Only `leasehold guard` starts it.
    install -D -m 0755 "$guard" "$root/usr/libexec/leasehold/leasehold-guard"
    strip --remove-section=.comment --remove-section=.note "$root/usr/bin/leasehold" "$root/usr/libexec/leasehold/leasehold-guard"
    install -D -m 0644 -t "$units" systemd/*.service systemd/*.socket
    install -D -m 0644 packaging/leasehold.preset "$root/usr/lib/systemd/system-preset/50-leasehold.preset"
    install -D -m 0644 packaging/leasehold.default "$root/etc/default/leasehold"
    # Never installed under the name that the daemon reads: it has to be edited first.
    install -D -m 0644 config/leasehold.toml "$root/etc/leasehold/leasehold.toml.example"
    install -D -m 0644 config/leasehold.toml "$doc/examples/leasehold.toml"
    install -m 0644 packaging/postgres/leasehold.sql "$doc/examples/leasehold.sql"
    install -D -m 0644 README.md "$doc/README.md"
    install -m 0644 docs/*.md "$doc"
    stage_pages
    stage_completions "$zsh"
}

# Written by the program itself, so that pages and options cannot drift apart.
stage_pages() {
    mkdir "$scratch/man"
    "$binary" man "$scratch/man"
    [ -e "$scratch/man/leasehold.8" ] || fail "'leasehold man FOLDER' wrote no leasehold.8"
    local page
    for page in "$scratch"/man/*.[1-8]; do
        install -D -m 0644 "$page" "$root/usr/share/man/man${page##*.}/${page##*/}"
    done
    find "$root/usr/share/man" -type f -exec gzip -9n {} +
}

stage_completions() {
    local zsh=$1 share=$root/usr/share file
    mkdir -p "$share/bash-completion/completions" "$zsh" "$share/fish/vendor_completions.d"
    "$binary" completions bash >"$share/bash-completion/completions/leasehold"
    "$binary" completions zsh >"$zsh/_leasehold"
    "$binary" completions fish >"$share/fish/vendor_completions.d/leasehold.fish"
    for file in "$share/bash-completion/completions/leasehold" "$zsh/_leasehold" "$share/fish/vendor_completions.d/leasehold.fish"; do
        [ -s "$file" ] || fail "'leasehold completions' wrote nothing into ${file##*/}"
    done
}

# A file that is younger than its commit would carry the time of this build into the package.
date_everything() {
    find "$root" -depth -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}
