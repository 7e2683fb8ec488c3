#!/usr/bin/env bash
# The Redfish emulator that tests/agents_redfish.rs talks to, in a Python environment of its own below target/.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
venv=target/venv-redfish
if ! [ -x "$venv/bin/sushy-emulator" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'sushy-tools==2.2.0' bcrypt
fi
