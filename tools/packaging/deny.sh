#!/usr/bin/env bash
# Holds the crates of all workspaces against deny.toml: `tools/packaging/deny.sh`, or `make deny`.
#
# Licences, versions and sources always; known faults if their database can be fetched, and it says so if not. Builds
# cargo-deny under the target folder, a minute once, unless the one on PATH is of this version. Exit code 1 for a finding.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=0.20.2
cargo="${CARGO:-cargo}"
target="${CARGO_TARGET_DIR:-$PWD/target}"
deny="$(command -v cargo-deny || true)"
if [ "$([ -z "$deny" ] || "$deny" --version)" != "cargo-deny $version" ]; then
  deny="$target/deny/bin/cargo-deny"
  if [ "$([ ! -x "$deny" ] || "$deny" --version)" != "cargo-deny $version" ]; then
    # Without optimisation, which takes longer than it saves.
    CARGO_PROFILE_DEV_DEBUG=false CARGO_TARGET_DIR="$target/deny/build" "$cargo" install --quiet --debug --locked --force \
      --root "$target/deny" "cargo-deny@$version" || exit 3
    rm -rf "$target/deny/build"
  fi
fi
checks=(bans licenses sources)
if said="$("$deny" --locked --config deny.toml fetch db 2>&1)"; then
  checks+=(advisories)
fi
failed=0
for manifest in Cargo.toml tools/fuzz/Cargo.toml tools/editors/generate/Cargo.toml; do
  # deny.toml explains what the first of them needs; there, an explanation of nothing is an error.
  level=(-A unmatched-skip -A unmatched-skip-root -A unused-wrapper)
  [ "$manifest" != Cargo.toml ] || level=(-D warnings)
  echo "$manifest"
  "$deny" --locked --workspace --manifest-path "$manifest" --config deny.toml \
    check "${level[@]}" -A license-exception-not-encountered "${checks[@]}" || failed=1
done
if [ ${#checks[@]} = 3 ]; then
  echo "advisories: not checked, the database cannot be reached: $(tail -n 1 <<<"$said")"
fi
exit $failed
