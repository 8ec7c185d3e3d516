#!/usr/bin/env bash
# Builds the programs for other machines, and prints their folder: `packaging/binaries.sh [CARGO OPTION...]`.
#
# No folder of this machine is in them: not as a run path, nor in the texts of panics and of C++ assertions. So two
# builds of one commit by the same compilers are equal, whatever folder they are made in.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}/packaging"
home="${CARGO_HOME:-$HOME/.cargo}"
rust="$(rustc --print sysroot)"
remapped() { # OPTION: the same three folders for rustc and for the C and C++ compilers
  printf ' %s=%s=/canonc %s=%s=/cargo %s=%s=/rust' "$1" "$PWD" "$1" "$home" "$1" "$rust"
}
if [ -d third_party/libtorch ]; then
  # libtorch can be behind a link.
  libtorch=" -ffile-prefix-map=$(cd third_party/libtorch && pwd -P)=/canonc/third_party/libtorch"
fi
export CANONC_RELOCATABLE=1
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export CFLAGS="${CFLAGS:-}$(remapped -ffile-prefix-map)${libtorch:-}"
export CXXFLAGS="${CXXFLAGS:-}$(remapped -ffile-prefix-map)${libtorch:-}"
export RUSTFLAGS="${RUSTFLAGS:-}$(remapped --remap-path-prefix)"
cargo build --release --locked --target-dir "$target" "$@" >&2
for program in "$target"/release/canonc "$target"/release/canonc-torch; do
  if [ -e "$program" ] && grep --quiet --text --fixed-strings -e "$PWD/" -e "$home/" "$program"; then
    echo "error: $program names a folder of this machine" >&2
    echo "help: \`strings $program | grep -F -e $PWD/ -e $home/\` shows where; remap it in packaging/binaries.sh" >&2
    exit 1
  fi
done
echo "$target/release"
