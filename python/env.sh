#!/usr/bin/env bash
# Makes the Python environment that builds the wheel once, and prints its folder; `python/env.sh test` also has what
# checks the wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "error: the wheel needs Python 3.11 or newer, and python3 is $(python3 --version)" >&2
  echo "help: put another one first on PATH, as python3" >&2
  exit 3
}
env="${CARGO_TARGET_DIR:-$PWD/target}/wheel-env"
digest() { sha256sum "$@" | sha256sum | cut -c1-16; }
installed() { # FILE MARK
  [ -e "$2" ] && return
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$1" >&2
  touch "$2"
}
build="$env/build-$(digest python/requirements-build.locked.txt)"
if [ ! -e "$build" ]; then
  rm -rf "$env"
  python3 -m venv "$env" >&2
fi
installed python/requirements-build.locked.txt "$build"
if [ "${1:-}" = test ]; then
  installed python/requirements.locked.txt "$env/test-$(digest python/requirements.locked.txt)"
fi
echo "$env"
