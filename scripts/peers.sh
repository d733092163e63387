#!/usr/bin/env bash
# Sets up what `make bench-peers` compares this library with, in .deps/vllm-worker (git-ignored), without root: vLLM, of
# which only the NIXL worker runs, NIXL's Python binding, and matplotlib for the picture. It fetches 3.6 GB with pip,
# nearly all of it torch with its CUDA libraries, which vLLM's wheel wants even where there is no GPU; 7 GB unpacked.
#
# Running it again costs nothing.
set -euo pipefail
export PIP_RETRIES=10
cd "$(dirname "$0")/.."

# Without their dependencies: vLLM's are engines and kernels, and the worker needs only what the list has.
ALONE=(vllm==0.33.0 nixl==1.5.1 nixl-cu13==1.5.1)
list=python/bench/peers/requirements.txt
venv=.deps/vllm-worker

say() { printf 'peers: %s\n' "$*" >&2; }

# For this library's own processes.
scripts/python.sh -c pass

wanted="${ALONE[*]} $(sha256sum <"$list")"
if [ "$(cat "$venv/peers.stamp" 2>/dev/null)" != "$wanted" ]; then
    free=$(df --output=avail -k .deps/ | tail -1)
    [ "$free" -gt $((10 << 20)) ] || { say "10 GB of free disk are needed, $((free >> 20)) GB are there"; exit 1; }
    say "fetching vLLM's worker and torch: 3.6 GB"
    [ -x "$venv/bin/pip" ] || python3 -m venv --clear "$venv"
    pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet --no-cache-dir "$@"; }
    # An older one would make pip complain of all that it lacks.
    pip uninstall --yes vllm 2>/dev/null || true
    pip install --only-binary=:all: -r "$list" && pip install --only-binary=:all: --no-deps "${ALONE[@]}" || {
        say "cannot install $list and ${ALONE[*]} with pip (is a package index reachable?)"
        exit 1
    }
    echo "$wanted" >"$venv/peers.stamp"
fi
