#!/usr/bin/env bash
# Builds the programs for other machines, and prints their folder: `tools/packaging/binaries.sh [CARGO OPTION...]`.
#
# No folder of this machine is in them: not as a run path, nor in the texts of panics and of C++ assertions. So two
# builds of one commit by the same compilers are equal, whatever folder they are made in, and whichever mirror of the
# registry their crates are from (tools/packaging/reproduce.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."
clone="$(pwd -P)"
home="${CARGO_HOME:-$HOME/.cargo}"
rust="$(rustc --print sysroot)"
mkdir -p "${CARGO_TARGET_DIR:-target}/packaging"
target="$(cd "${CARGO_TARGET_DIR:-target}/packaging" && pwd -P)"
if [ -n "${LIBTORCH_USE_PYTORCH:-}" ]; then
  libtorch="$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')"
else
  libtorch="${LIBTORCH:-$clone/third_party/libtorch/torch}"
fi
# The folders of the registry have the name of its host, and are there once the crates are.
cargo fetch --locked --target "$(rustc --print host-tuple)" >&2

from=() to=()
replace() { # FOLDER NAME: in the programs; of two that match, the last one counts
  local folder
  for folder in "$1" "$(realpath -m "$1")"; do
    case "$folder" in *[[:space:]]*)
      echo "error: \`$folder\` has a space in its name, and flags of compilers are split at spaces" >&2
      echo "help: use a clone, CARGO_HOME, CARGO_TARGET_DIR and LIBTORCH without spaces in their names" >&2
      exit 2 ;;
    esac
    from+=("$folder") to+=("$2")
  done
}
replace "$clone" /canonc
replace "$target" /canonc/target/packaging
replace "$rust" /rust
replace "$home" /cargo
for registry in "$home"/registry/src/*; do
  [ -d "$registry" ] || continue # of vendored crates
  replace "$registry" /cargo/src
done
replace "$libtorch" /canonc/third_party/libtorch/torch

# One option for each folder: for rustc, and for the C and C++ compilers.
flags() { # OPTION
  local i
  for i in "${!from[@]}"; do
    printf ' %s=%s=%s' "$1" "${from[i]}" "${to[i]}"
  done
}
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
CFLAGS="${CFLAGS:-}$(flags -ffile-prefix-map)"
CXXFLAGS="${CXXFLAGS:-}$(flags -ffile-prefix-map)"
RUSTFLAGS="${RUSTFLAGS:-}$(flags --remap-path-prefix)"
export SOURCE_DATE_EPOCH CFLAGS CXXFLAGS RUSTFLAGS CANONC_RELOCATABLE=1
# It would be used instead of RUSTFLAGS.
unset CARGO_ENCODED_RUSTFLAGS
cargo build --release --locked --target-dir "$target" "$@" >&2

patterns=(/registry/src/)
names="$(printf ' %s/' "${to[@]}")"
for folder in "${from[@]}"; do
  # In a clone at /canonc, as in the image, the names are the folders.
  case "$names" in *" $folder/"*) ;; *) patterns+=("$folder/") ;; esac
done
for program in "$target"/release/canonc "$target"/release/canonc-torch "$target"/release/libcanonc_nccl.so; do
  [ -e "$program" ] || continue
  left="$(printf '%s\n' "${patterns[@]}" |
    LC_ALL=C grep --text --only-matching --fixed-strings --file=- "$program" | sort -u)" || [ $? = 1 ]
  if [ -n "$left" ]; then
    echo "error: $program names a folder of this machine: $left" >&2
    echo "help: \`strings $program | grep -F '${left%%$'\n'*}'\` shows where; replace it in tools/packaging/binaries.sh" >&2
    exit 1
  fi
done
echo "$target/release"
