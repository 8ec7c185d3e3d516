#!/usr/bin/env bash
# Makes the Python environment of the GPU kernels and prints its folder: CANONC_GPU_ENV, or target/gpu-env.
# About 740 MB on disk; made again when requirements.locked.txt changes. Needs python3 (3.11 to 3.14) with venv and pip.
set -euo pipefail
cd "$(dirname "$0")/.."
env="${CANONC_GPU_ENV:-target/gpu-env}"
command -v python3 >/dev/null || {
  echo "error: python3 is not on PATH, and the GPU kernels are written in Python (Triton)" >&2
  echo "help: install python3 with venv and pip and repeat" >&2
  exit 3
}
if ! cmp -s gpu/requirements.locked.txt "$env/requirements.txt"; then
  rm -rf "$env"
  python3 -m venv "$env" >&2
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r gpu/requirements.locked.txt >&2
  cp gpu/requirements.locked.txt "$env/requirements.txt"
fi
echo "$env"
