#!/usr/bin/env bash
# The EC2 server that tests/agents_ec2.rs talks to (moto), in a virtual environment of its own below target/.
#
#   tests/ec2/venv.sh        makes it, unless it is there; prints its folder
#
# Tests that start side by side wait for the first by the lock. The mark is written last: what an interrupted run left
# is made anew.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# One version for everyone: its answers are part of what the tests rely on.
version=5.2.5
folder="$PWD/target/venvs/moto-$version"

mkdir -p "$PWD/target/venvs"
exec 9>"$folder.lock"
flock 9
if [ ! -e "$folder/complete" ]; then
    rm -rf "$folder"
    python3 -m venv "$folder" >&2
    "$folder/bin/pip" install --quiet --disable-pip-version-check "moto[ec2,server]==$version" >&2
    touch "$folder/complete"
fi
echo "$folder"
