#!/bin/sh
# Feeds each reader of files with mutated ones, keeping what reaches new code: tools/fuzz/run.sh [SECONDS [READER...]]
# Fails at a panic, at more than 256 MB over what a reader needs to start, and at an input that takes more than a second.
# The compiler's stable release has the coverage that libFuzzer wants; a C++ compiler is needed.
set -eu
cd "$(dirname "$0")"
seconds="${1:-4}"
[ $# -eq 0 ] || shift
target="${CARGO_TARGET_DIR:-../../target/fuzz}"
host="$(rustc -vV | sed -n 's/^host: //p')"
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table" \
  cargo build --release --locked --target "$host" --target-dir "$target"
[ $# -gt 0 ] || set -- corpus/*
for reader in "$@"; do
  reader="$(basename "$reader")"
  # New inputs go beside the build, so that the committed corpus stays small.
  found="$target/found/$reader"
  mkdir -p "$found"
  CANONC_READER="$reader" "$target/$host/release/readers" "$found" "corpus/$reader" \
    -max_total_time="$seconds" -rss_limit_mb=512 -malloc_limit_mb=256 -timeout=1 \
    -max_len=65536 -artifact_prefix="$found-" -print_final_stats=1
done
