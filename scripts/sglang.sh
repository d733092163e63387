#!/usr/bin/env bash
# Fetches what the tests of examples/sglang need, into .deps/ (git-ignored), without root:
#
#   .deps/venv     Python packages: the integration's and those that SGLang's disaggregation modules import
#   .deps/sglang   the published package sglang, unpacked without its dependencies
#
# Running it again costs nothing. Where sglang cannot be had, tests against it skip with one line; with
# KV_SGLANG_REQUIRED=1, as CI sets it, that is an error here.
set -euo pipefail
export PIP_RETRIES=10
cd "$(dirname "$0")/.."

SGLANG_VERSION=0.5.23
# Beside those of python/requirements.txt.
PACKAGES=(pyzmq==27.3.0 requests==2.34.2 aiohttp==3.14.5 msgspec==0.23.0 psutil==7.2.2)
# Without their dependencies, which are torch and CUDA.
ALONE=(nixl==1.5.1 nixl-cu12==1.5.1)

say() { printf 'sglang: %s\n' "$*" >&2; }
pip() { .deps/venv/bin/python -m pip --disable-pip-version-check --quiet "$@"; }

mkdir -p .deps
scripts/python.sh -c pass

wanted="${PACKAGES[*]} ${ALONE[*]}"
if [ "$(cat .deps/venv/sglang.stamp 2>/dev/null)" != "$wanted" ]; then
    say "fetching Python packages"
    pip install --no-compile --only-binary=:all: "${PACKAGES[@]}"
    pip install --no-compile --only-binary=:all: --no-deps "${ALONE[@]}"
    echo "$wanted" >.deps/venv/sglang.stamp
fi

if [ "$(cat .deps/sglang.stamp 2>/dev/null)" != "$SGLANG_VERSION" ] || [ ! -d .deps/sglang/sglang ]; then
    say "fetching sglang $SGLANG_VERSION"
    rm -rf .deps/sglang .deps/sglang.part
    # Only its Python sources are used, so the wheel's Python version need not be this machine's.
    if pip install --no-compile --no-deps --only-binary=:all: --python-version 3.11 \
        --platform "manylinux_2_34_$(uname -m)" --platform "manylinux2014_$(uname -m)" \
        --target .deps/sglang.part "sglang==$SGLANG_VERSION"; then
        mv .deps/sglang.part .deps/sglang
        echo "$SGLANG_VERSION" >.deps/sglang.stamp
    else
        rm -rf .deps/sglang.part
        say "cannot fetch sglang $SGLANG_VERSION with pip: tests against it are skipped"
        [ -z "${KV_SGLANG_REQUIRED:-}" ] || exit 1
    fi
fi
