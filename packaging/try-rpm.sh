#!/usr/bin/env bash
# Looks at an RPM package from all sides: what it has, what it needs, and that it lands in an empty tree as it should.
#
#   packaging/try-rpm.sh PACKAGE
set -euo pipefail

package=$(realpath "$1")
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/tree

fail() {
    echo "try-rpm: $*" >&2
    exit 1
}

rpm -qpl "$package" | sort >"$scratch/list"

# rpmlint 2 ends with 0 for warnings, which here have to be explained as well.
rpmlint --config "$here/rpm/rpmlint.toml" "$package" | tee "$scratch/lint"
grep -q '0 errors, 0 warnings' "$scratch/lint" || fail "rpmlint has found something; mend it, or give the reason in rpm/rpmlint.toml"

for script in POSTIN PREUN POSTUN; do
    rpm -qp --queryformat "%{$script}" "$package" >"$scratch/$script"
    [ -s "$scratch/$script" ] || fail "no scriptlet $script"
    shellcheck --shell=sh "$scratch/$script"
done

for file in /usr/bin/leasehold /usr/lib/systemd/system/leasehold{,-guard}.service \
    /usr/lib/systemd/system-preset/50-leasehold.preset /usr/share/man/man8/leasehold.8.gz \
    /usr/share/man/man5/leasehold.toml.5.gz /usr/share/bash-completion/completions/leasehold \
    /usr/share/zsh/site-functions/_leasehold /usr/share/fish/vendor_completions.d/leasehold.fish; do
    grep -qx "$file" "$scratch/list" || fail "$file is not in it"
done
! grep -qx /etc/leasehold/leasehold.toml "$scratch/list" || fail "it has a running configuration"

# The programs of an empty tree are none, so no scriptlet can run there; try-scripts.sh runs them.
mkdir -p "$tree"
rpm --root "$tree" --dbpath /var/lib/rpm --initdb
rpm --root "$tree" --dbpath /var/lib/rpm --install --nodeps --noscripts "$package"
rpm --root "$tree" --dbpath /var/lib/rpm --verify --nodeps --noscripts leasehold
diff "$scratch/list" <(rpm --root "$tree" --dbpath /var/lib/rpm -ql leasehold | sort)
"$tree/usr/bin/leasehold" check "$tree/etc/leasehold/leasehold.toml.example" >/dev/null
rpm --root "$tree" --dbpath /var/lib/rpm --erase --nodeps --noscripts leasehold
[ ! -e "$tree/usr/bin/leasehold" ] || fail "the removal left the program behind"
echo "listed, checked, installed into an empty tree, verified and erased as it should"
