#!/usr/bin/env bash
# Makes the Python environment that builds and checks the wheel once, and prints its folder.
set -euo pipefail
cd "$(dirname "$0")/.."
env="${CARGO_TARGET_DIR:-$PWD/target}/wheel-env"
mark="$env/installed-$(python3 -c 'import hashlib;print(hashlib.sha256(open("python/requirements.txt","rb").read()).hexdigest()[:16])')"
if [ ! -e "$mark" ]; then
  rm -rf "$env"
  python3 -m venv "$env" >&2
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check -r python/requirements.txt >&2
  touch "$mark"
fi
echo "$env"
