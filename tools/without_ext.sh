#!/usr/bin/env bash
# Shows that extensions can be deleted: `tools/without_ext.sh` builds a copy of the tree without ext/ and runs its tests;
# `tools/without_ext.sh check` only compiles it, tests included.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
copy=$target/without-ext
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  case "$file" in ext/*) continue ;; esac
  if [ -e "$file" ]; then printf '%s\0' "$file"; fi
done | tar --null --files-from=- --create | tar --extract --directory "$copy"
[ -d third_party ] && ln -s "$root/third_party" "$copy/third_party"
cd "$copy"
# tools/ has workspaces of its own, for the whole tree. The manifest of the workspace and the two programs, and tests of both, is the one that names extensions.
names=$(sed -n 's/^name = "canonc-\(.*\)"$/\1/p' "$root"/ext/*/Cargo.toml | paste -sd'|')
sed -i -E -e "/^\[profile\.dev\.package\.canonc-($names)\]/,+1d" -e '\#ext/#d' -e "/^canonc-($names)( =|\.)/d" -e 's/^(ext|models) = .*/\1 = []/' -e 's/, "ext", "models"\]/]/' Cargo.toml
if grep -rnE "canonc-($names)\b" --include=Cargo.toml --exclude-dir=tools . >&2; then
  echo "error: these manifests name an extension" >&2
  exit 1
fi
export CARGO_TARGET_DIR=$target
case "${1:-test}" in
  check) cargo check --offline --workspace --all-targets ;;
  test) CARGO_NET_OFFLINE=true python3 tools/test.py ;;
  *) echo "usage: tools/without_ext.sh [check|test]" >&2; exit 2 ;;
esac
