#!/usr/bin/env bash
# Packs what `canonc selftest` needs into one folder, for a machine with Python's torch 2.11 and no Rust:
#     gpu/pack.sh FOLDER
# In: release binaries under target/release (built if missing). Out: FOLDER with `canonc-torch`, which has every command,
# the goldens, and `selftest`, a script that finds torch's libraries. Must stay true: the folder is below 60 MB, and
# nothing in it depends on a path of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:?usage: gpu/pack.sh FOLDER}"
if [ -e "$out" ] && [ -n "$(ls -A "$out")" ]; then
  echo "error: $out is not empty" >&2
  echo "help: name a new folder" >&2
  exit 2
fi
if [ ! -x target/release/canonc-torch ]; then
  cargo build --release
fi
mkdir -p "$out/golden"
cp target/release/canonc-torch "$out/"
cp -r tests/golden/checkpoints tests/golden/mixers "$out/golden/"
cat > "$out/selftest" <<'RUN'
#!/usr/bin/env bash
# Runs canonc's self-test on this machine: ./selftest [--device cpu] [--python PYTHON --peer bench_torch.py] …
# PYTHON (default: python3) must import torch 2.11; its libraries are used.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
python="${PYTHON:-python3}"
lib="$("$python" -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))')" || {
  echo "error: $python cannot import torch; this program needs its libraries" >&2
  echo "help: name one that can: PYTHON=/path/to/python ./selftest" >&2
  exit 3
}
version="$("$python" -c 'import torch; print(torch.__version__)')"
case "$version" in
  2.11.*) ;;
  *)
    echo "error: torch is $version, and this program was built for 2.11" >&2
    echo "help: name a Python with torch 2.11: PYTHON=/path/to/python ./selftest" >&2
    exit 3
    ;;
esac
export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
device=(--device cuda)
for word in "$@"; do
  case "$word" in --device | --device=*) device=() ;; esac
done
exec "$here/canonc-torch" selftest "${device[@]}" --out "$here/results" --goldens "$here/golden" "$@"
RUN
chmod +x "$out/selftest"
cat > "$out/README" <<'TEXT'
./selftest checks the GPU of this machine in under ten minutes and writes results/selftest.json.
It needs a Python that imports torch 2.11; PYTHON=/path/to/python names one. ./selftest --device cpu checks the CPU.
TEXT
bytes="$(du -sb "$out" | cut -f1)"
if [ "$bytes" -gt 60000000 ]; then
  echo "error: $out has $bytes bytes, more than 60 MB" >&2
  exit 1
fi
echo "$out: $bytes bytes"
