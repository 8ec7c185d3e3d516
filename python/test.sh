#!/usr/bin/env bash
# Tests the wheel in fresh environments: `python/test.sh WHEEL`.
#
# `bare` has the wheel alone, `full` also NumPy, pandas, safetensors and PyTorch: as in runtime/libtorch.txt, without the
# GPU libraries that a CPU does not need (544 MB, once: PyTorch stays installed, the wheel is installed again).
set -euo pipefail
wheel="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
env="$(python/env.sh test)"
pip() { # ENVIRONMENT WORD...
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"
}
bare="$target/wheel-test/bare" full="$target/wheel-test/full"
rm -rf "$bare"
python3 -m venv "$bare"
pip "$bare" "$wheel"
torch=python/requirements-torch.locked.txt
mark="$full/installed-$(sha256sum "$torch" | cut -c1-16)"
if [ ! -e "$mark" ]; then
  rm -rf "$full"
  python3 -m venv "$full"
  TMPDIR="$full" pip "$full" --no-deps --require-hashes -r "$torch"
  touch "$mark"
fi
pip "$full" --require-hashes -r python/requirements-module.locked.txt
pip "$full" --force-reinstall --no-deps "$wheel"
# Types, of the package as installed (a copy: a checker pointed at an environment checks all of it), and of the tests.
types="$target/wheel-test/types"
rm -rf "$types" && mkdir -p "$types"
cp -R "$bare"/lib/python3*/site-packages/canonc "$types"
[ -e "$types/canonc/py.typed" ]
MYPYPATH="$types" "$env/bin/mypy" --strict --config-file python/pyproject.toml --python-executable "$env/bin/python" \
  --cache-dir "$target/wheel-test/mypy" "$types/canonc" python/tests/*.py
CANONC_BARE="$bare" CANONC_WHEEL="$wheel" CANONC_TOOLS="$env" "$full/bin/python" -W error -m unittest \
  discover --start-directory python/tests
