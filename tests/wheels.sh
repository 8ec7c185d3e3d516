#!/usr/bin/env bash
# Fetches the wheels of tests/requirements.locked.txt, each by its hash: `tests/wheels.sh FOLDER` (3 GB, in place of what
# was there). An environment is then made from the folder alone. What is published as source only becomes a wheel here,
# without a look at the index for what builds it.
set -euo pipefail
if [ $# != 1 ]; then
  echo "usage: tests/wheels.sh FOLDER" >&2
  exit 2
fi
rm -rf "$1"
mkdir -p "$1"
folder="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."
python3 -m venv "$folder/env"
pip() {
  TMPDIR="$folder" "$folder/env/bin/python" -m pip "$1" --quiet --disable-pip-version-check --no-deps --require-hashes "${@:2}"
}
pip install --upgrade -r tests/requirements-build.locked.txt
pip wheel --no-build-isolation --wheel-dir "$folder" -r tests/requirements.locked.txt
rm -rf "$folder/env"
