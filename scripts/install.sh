#!/usr/bin/env bash
# Installs the C library: headers, shared and static library, kvffi.pc, a CMake package, the licence.
#
#   scripts/install.sh BUILT      the folder in which cargo left libkvffi.so and libkvffi.a
#
#   PREFIX    /usr/local
#   LIBDIR    $PREFIX/lib; has to lie below PREFIX
#   DESTDIR   empty; where to put the tree instead, for packagers. No installed file names it
#
# No installed file names PREFIX either: the tree may be moved, and needs nothing of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'install: %s\n' "$*" >&2; exit 1; }

built=${1:?the folder with libkvffi.so and libkvffi.a}
prefix=${PREFIX:-/usr/local}
prefix=${prefix%/}
libdir=${LIBDIR:-$prefix/lib}
case $prefix in /*) ;; *) die "PREFIX is $prefix: it has to be an absolute path" ;; esac
case $libdir in "$prefix"/?*) libdir=${libdir#"$prefix"/} ;; *) die "LIBDIR is $libdir: it has to lie below PREFIX, $prefix" ;; esac
libdir=${libdir%/}
for file in libkvffi.so libkvffi.a; do
    [ -f "$built/$file" ] || die "$built/$file is missing: cargo build --release --package kvffi"
done

version=$(sed -n 's/^version = "\([0-9]*\.[0-9]*\.[0-9]*\)"$/\1/p' Cargo.toml)
[ -n "$version" ] || die 'Cargo.toml has no version'
IFS=. read -r major minor _ <<<"$version"
# What must fit for two versions to go together; kvffi/build.rs names the library by it.
if [ "$major" = 0 ]; then
    line=0.$minor line_is=minor line_pattern="0[.]$minor[.]"
else
    line=$major line_is=major line_pattern="$major[.]"
fi
soname=libkvffi.so.$line

# From the libraries' folder up to the prefix.
up=$(sed 's#[^/][^/]*#..#g' <<<"$libdir")
# What the archive needs of the system: the Rust library, and the C++ half of NIXL's bindings.
private=(-lstdc++ -lgcc_s -lutil -lrt -lpthread -lm -ldl)

root=${DESTDIR:-}$prefix
fill() {
    install -d "$(dirname "$3")"
    sed -e "s#@VERSION@#$version#g; s#@SONAME@#$soname#g; s#@LIBDIR@#$libdir#g; s#@UP@#$up#g; s#@PRIVATE@#$2#g" \
        -e "s#@LINE_IS@#$line_is#g; s#@LINE_PATTERN@#$line_pattern#g" "kvffi/install/$1" >"$3"
    chmod 644 "$3"
}
cmake_list=$(IFS=';'; echo "${private[*]#-l}")
fill kvffi.pc.in "${private[*]}" "$root/$libdir/pkgconfig/kvffi.pc"
fill kvffiConfig.cmake.in "$cmake_list" "$root/$libdir/cmake/kvffi/kvffiConfig.cmake"
fill kvffiConfigVersion.cmake.in '' "$root/$libdir/cmake/kvffi/kvffiConfigVersion.cmake"

install -d "$root/include" "$root/share/licenses/kvffi"
install -m 644 include/kvffi.h include/kvffi.hpp "$root/include"
install -m 644 LICENSE "$root/share/licenses/kvffi"
install -m 644 "$built/libkvffi.a" "$root/$libdir"
install -m 755 "$built/libkvffi.so" "$root/$libdir/libkvffi.so.$version"
ln -sf "libkvffi.so.$version" "$root/$libdir/$soname"
ln -sf "$soname" "$root/$libdir/libkvffi.so"
