#!/usr/bin/env bash
# Packs the wheel: `python/wheel.sh BINARIES OUT`.
#
# BINARIES is the folder that tools/packaging/binaries.sh prints; OUT gets one wheel, in place of older ones. The wheel
# contains no library but ours for ranks on GPUs. Its tag is the oldest manylinux whose libraries the programs can use, which auditwheel computes
# from their symbols. The same programs and commit give the same bytes.
set -euo pipefail
binaries="$(cd "${1:?a folder with programs}" && pwd)"
mkdir -p "$2"
out="$(cd "$2" && pwd)"
cd "$(dirname "$0")/.."
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
env="$(python/env.sh)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
cp -R python/canonc python/pyproject.toml python/hatch_build.py python/README.md LICENSE NOTICE Cargo.toml "$work/source"
rm -rf "$work/source/canonc/__pycache__"
"$env/bin/python" tools/packaging/licences.py > "$work/source/THIRD-PARTY.txt"
mkdir "$work/source/canonc/bin"
for program in canonc canonc-torch; do
  install -m 755 "$binaries/$program" "$work/source/canonc/bin/$program"
done
ranks=libcanonc_nccl.so
if [ -e "$binaries/$ranks" ]; then
  install -m 755 "$binaries/$ranks" "$work/source/canonc/bin/$ranks"
fi
"$env/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index \
  --wheel-dir "$work/plain" "$work/source" >&2
# The libraries of PyTorch are those of the environment that the wheel is installed in.
PATH="$env/bin:$PATH" "$env/bin/auditwheel" repair --exclude libtorch_cpu.so --exclude libc10.so --exclude libgomp.so.1 \
  --exclude libtorch_cuda.so --exclude libc10_cuda.so --wheel-dir "$work/wheel" "$work"/plain/canonc-*.whl >&2
# A library that was packed as well would mean that a program links another one than it should.
if "$env/bin/python" -m zipfile --list "$work"/wheel/canonc-*.whl | grep -F -v "canonc/bin/$ranks " | grep -E '\.so( |\.)' >&2; then
  echo "error: the wheel contains libraries" >&2
  echo "help: exclude them in python/wheel.sh if every environment has them, or link them statically" >&2
  exit 1
fi
rm -f "$out"/canonc-*.whl
mv "$work"/wheel/canonc-*.whl "$out"
echo "on CPUs and, with a CUDA build of PyTorch 2.11, on a GPU: yes" >&2
if [ -e "$work/source/canonc/bin/$ranks" ]; then
  echo "on several GPUs: yes, $ranks is in the wheel" >&2
else
  echo "on several GPUs: no, $binaries has no $ranks" >&2
  echo "help: \`sh runtime/native/nccl.sh TORCH $binaries\` compiles it without a GPU; then pack again" >&2
fi
ls "$out"/canonc-*.whl
