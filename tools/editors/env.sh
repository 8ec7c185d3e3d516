#!/usr/bin/env bash
# Makes the Python environment of `make test-editors` once, and prints its folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
env="${CARGO_TARGET_DIR:-$PWD/target}/editors-env"
mark="$env/installed-$(python3 -c 'import hashlib;print(hashlib.sha256(open("tools/editors/requirements.locked.txt","rb").read()).hexdigest()[:16])')"
if [ ! -e "$mark" ]; then
  rm -rf "$env"
  python3 -m venv "$env" >&2
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/editors/requirements.locked.txt >&2
  touch "$mark"
fi
echo "$env"
