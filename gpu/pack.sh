#!/usr/bin/env bash
# Packs the first run on a GPU into the ignored folder .gpu: `gpu/pack.sh`, or `make gpu-pack`.
#
# The machine with the GPU gets the working tree (tracked files, and new ones that git does not ignore) and .gpu. It has
# Python with torch 2.11, and no Rust: .gpu holds canonc-torch, compressed, and what gpu/first.sh starts. All of it has
# to fit in 60 MiB. PROGRAM=FILE packs that canonc-torch as it is, instead of one that is built now.
set -euo pipefail
program="${PROGRAM:-}"
case "$program" in "" | /*) ;; *) program="$PWD/$program" ;; esac
cd "$(dirname "$0")/.."
limit="${LIMIT:-62914560}" # bytes
if [ -z "$program" ]; then
  # Always: cargo alone knows whether a program is older than its sources.
  "${CARGO:-cargo}" build --release --locked --bin canonc-torch
  program="${CARGO_TARGET_DIR:-target}/release/canonc-torch"
fi
if [ ! -f "$program" ]; then
  echo "error: there is no program \`${PROGRAM:-$program}\`" >&2
  echo "help: leave out PROGRAM, or name a canonc-torch" >&2
  exit 2
fi

# What a run has left in .gpu/out stays, and travels.
mkdir -p .gpu
rm -f .gpu/*.xz .gpu/*.py .gpu/first.sh .gpu/commit
if command -v xz >/dev/null; then
  xz -6 -T1 -c "$program" >.gpu/canonc-torch.xz
else
  python3 -c 'import lzma, shutil, sys
shutil.copyfileobj(open(sys.argv[1], "rb"), lzma.open(sys.argv[2], "wb", preset=6), 1 << 20)' "$program" .gpu/canonc-torch.xz
fi
cp gpu/first.sh gpu/probe.py .gpu/
cp ext/models/src/bench/peers/step.py .gpu/peer.py
# Results name the commit; there is no git where they are made.
tree=clean
if [ -n "$(git status --porcelain)" ]; then
  tree=dirty
fi
echo "$(git rev-parse HEAD) $tree" >.gpu/commit

python3 - "$limit" <<'PYTHON'
import collections, pathlib, subprocess, sys

limit = int(sys.argv[1])
listed = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], stdout=subprocess.PIPE, check=True
).stdout
paths = {pathlib.Path(name.decode(errors="surrogateescape")) for name in listed.split(b"\0") if name}
paths |= set(pathlib.Path(".gpu").rglob("*"))
# A tracked file that was deleted does not travel; a link travels as a link.
sizes = {path: path.lstat().st_size for path in paths if path.is_symlink() or path.is_file()}
total, folders = sum(sizes.values()), collections.Counter()
for path, size in sizes.items():
    folders[path.parts[0] if len(path.parts) > 1 else "(files of the root)"] += size
print(f"{'bytes':>12}  folder")
for folder, size in folders.most_common():
    print(f"{size:12,}  {folder}")
print(f"{total:12,}  in all, of {limit:,}")
if total > limit:
    print(f"error: {total:,} bytes would travel, {total - limit:,} more than the limit. The largest files:", file=sys.stderr)
    for path, size in sorted(sizes.items(), key=lambda item: -item[1])[:10]:
        print(f"{size:12,}  {path}", file=sys.stderr)
    print("help: make them smaller, let git ignore what the GPU does not need, or move results out of .gpu/out", file=sys.stderr)
    sys.exit(1)
PYTHON
echo "packed $(cut -d' ' -f1 .gpu/commit) ($tree): copy the tree and .gpu, and run \`bash gpu/first.sh A\` there"
