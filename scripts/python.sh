#!/usr/bin/env bash
# Runs Python with what python/requirements.txt lists, from .deps/venv, which it sets up where it is missing or old:
#
#   scripts/python.sh -m pytest python
set -euo pipefail
export PIP_RETRIES=10
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/.deps/venv
stamp=$venv/requirements.stamp

if ! cmp -s "$root/python/requirements.txt" "$stamp"; then
    mkdir -p "$root/.deps"
    [ -x "$venv/bin/pip" ] || python3 -m venv --clear "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check --quiet install -r "$root/python/requirements.txt" || {
        echo 'python: cannot install python/requirements.txt with pip (is a package index reachable?)' >&2
        exit 1
    }
    cp "$root/python/requirements.txt" "$stamp"
fi
exec "$venv/bin/python" "$@"
