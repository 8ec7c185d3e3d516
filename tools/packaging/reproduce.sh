#!/usr/bin/env bash
# Builds the last commit twice and compares the programs: `tools/packaging/reproduce.sh [CARGO OPTION...]`.
#
# It prints their digests if both builds are equal, and exits with code 1 if not. The two clones have different names, the
# second build's target folder is outside its clone, and both use this clone's libtorch. It takes two release builds, so
# it is for releases and not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
clone="$(pwd -P)"
commit="$(git rev-parse HEAD)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
built() { # CLONE TARGET: prints the folder of its programs
  git clone --quiet --no-checkout "$clone" "$1" >&2
  git -C "$1" checkout --quiet --detach "$commit" >&2
  [ ! -e "$clone/third_party" ] || ln -s "$clone/third_party" "$1/third_party"
  CARGO_TARGET_DIR="$2" "$1/tools/packaging/binaries.sh" "${@:3}"
}
a="$(built "$work/one" "$work/one/target" "$@")"
b="$(built "$work/other/clone" "$work/elsewhere" "$@")"
for program in canonc canonc-torch libcanonc_nccl.so; do
  # Without libtorch there is only the first.
  [ "$program" != canonc ] && [ ! -e "$a/$program" ] && [ ! -e "$b/$program" ] && continue
  cmp "$a/$program" "$b/$program" || {
    echo "error: two builds of $commit give different $program" >&2
    exit 1
  }
  echo "$(sha256sum < "$a/$program" | cut -d' ' -f1)  $program"
done
echo "equal: two builds of $commit"
