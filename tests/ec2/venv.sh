#!/usr/bin/env bash
# The EC2 server that tests/agents_ec2.rs talks to: moto, in a virtual environment of its own.
#
#   tests/ec2/venv.sh        makes it once, below target/; prints the folder
#
# Made beside its place and moved there whole, so that an interrupted run leaves no half of it. The lock lets tests
# that start side by side wait for the first.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# One version for everyone: its answers are part of what the tests rely on.
want="moto[ec2,server]==MOTO"
folder="$PWD/target/venvs/moto-MOTO"

mkdir -p "$PWD/target/venvs"
exec 9>"$folder.lock"
flock 9
if [ ! -x "$folder/bin/moto_server" ]; then
    rm -rf "$folder"
    python3 -m venv "$folder" >&2
    if ! "$folder/bin/pip" install --quiet --disable-pip-version-check "$want" >&2; then
        rm -rf "$folder"
        exit 1
    fi
fi
echo "$folder"
