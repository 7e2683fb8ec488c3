#!/usr/bin/env bash
# Builds both packages, .deb and .rpm, from a finished release binary; the options go to both (see there).
#
#   packaging/build.sh [--binary PATH]
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
"$here/build-deb.sh" "$@"
"$here/build-rpm.sh" "$@"
