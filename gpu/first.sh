#!/usr/bin/env bash
# The first minutes on a GPU: `gpu/first.sh A`, then `gpu/first.sh B`; `gpu/first.sh C` after a lost context.
#     gpu/first.sh A|B|C [SECONDS]      ends within SECONDS [550]
#
# It needs the tree and .gpu (gpu/pack.sh), and a python3 with torch 2.11. Results go to $OUT [.gpu/out/PART], at most 8
# files that are written while a step runs, so a kill loses nothing that was finished. Every step has a limit, none stops
# the others, and those of most worth come first. No setting of the card is changed.
#   A  facts; our kernels without the program; what libtorch reaches; `canonc selftest`; steps of the 1 B models
#   B  whole runs; the same steps in PyTorch; the linear families; where the time of a step goes
#   C  compute-sanitizer: which kernel reads or writes a wrong address
# For tests: DEVICE=cpu, PERCENT of each limit, WORK for what is not a result.
set -u
part="${1:-}"
case "$part" in A | B | C) ;; *)
  echo "usage: gpu/first.sh A|B|C [SECONDS]" >&2
  exit 2
  ;;
esac
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/.." && pwd)"
cd "$root" || exit 3
OUT="${OUT:-$root/.gpu/out/$part}"
DEVICE="${DEVICE:-cuda}" PERCENT="${PERCENT:-100}" WORK="${WORK:-${TMPDIR:-/tmp}/canonc-first}"
mkdir -p "$OUT" "$WORK" || exit 3
OUT="$(cd "$OUT" && pwd)"
export PYTHONUNBUFFERED=1
probe="$here/probe.py" peer="$here/peer.py" program="$WORK/canonc-torch"
[ -f "$peer" ] || peer="$root/cli/torch/bench/peers/step.py"
everything=$((${2:-550} * PERCENT / 100)) # seconds
kept=400000                               # bytes that a step may say

log() { echo "[$(date -u +%T) +${SECONDS} s] $*" | tee -a "$OUT/log.txt"; }

# step SECONDS NAME COMMAND...: says everything to said.txt at once; its own part is then in $said.
step() {
  local limit=$(($1 * 10 * PERCENT)) name="$2" left=$(((everything - SECONDS - 3) * 1000)) before code
  shift 2
  said=""
  if [ "$left" -lt $((limit / 5)) ] || [ "$left" -le 0 ]; then
    log "left out: $name, only $((left / 1000)) s remain"
    return 125
  fi
  [ "$limit" -le "$left" ] || limit=$left
  printf -v limit '%d.%03d' $((limit / 1000)) $((limit % 1000))
  log "begin $name, at most $limit s"
  echo "=== $name: $*" >>"$OUT/said.txt"
  before=$(stat -c %s "$OUT/said.txt")
  timeout -k 5 "$limit" "$@" >>"$OUT/said.txt" 2>&1 </dev/null
  code=$?
  said="$WORK/$name.said"
  tail -c +$((before + 1)) "$OUT/said.txt" >"$said"
  if [ "$(stat -c %s "$said")" -gt $kept ]; then
    { head -c "$before" "$OUT/said.txt" && head -c $((kept / 4)) "$said" && echo && echo "[…]" &&
      tail -c $((kept / 4 * 3)) "$said"; } >"$WORK/shorter" && cp "$WORK/shorter" "$OUT/said.txt"
  fi
  log "end $name, code $code: $(grep -v '^ *$' "$said" | tail -n 1 | cut -c1-240)"
  return $code
}

# follow FILE COPY: what is written to FILE is in COPY at once, also if this script is killed.
follow() {
  mkdir -p "$(dirname "$1")"
  rm -f "$1"
  tail -n +1 -s 0.2 -F --pid=$$ "$1" >"$2" 2>/dev/null &
  following=$!
}
followed() { # FILE COPY
  kill "$following" 2>/dev/null
  wait "$following" 2>/dev/null
  if [ -s "$1" ]; then cp "$1" "$2"; else rm -f "$2"; fi
}

# What the driver says of the card; empty fields without one.
card="$(timeout 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)"
heading="$(date -u +%FT%TZ), ${card:-no card, no driver}, commit $(cat "$root/.gpu/commit" 2>/dev/null || echo unknown)"
for file in log facts said; do echo "$heading" >"$OUT/$file.txt"; done
echo "$heading"

# The program, unless this machine has it from an earlier call.
packed="$(cksum <"$root/.gpu/canonc-torch.xz")"
if [ ! -x "$program" ] || [ "$packed" != "$(cat "$WORK/packed" 2>/dev/null)" ]; then
  log "unpack canonc-torch"
  if python3 -c 'import lzma, shutil, sys
shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"), 1 << 20)' "$root/.gpu/canonc-torch.xz" "$program" \
    2>>"$OUT/said.txt" && chmod +x "$program"; then
    echo "$packed" >"$WORK/packed"
  else
    log "canonc-torch was not unpacked: only the steps in Python remain"
    rm -f "$program"
  fi
fi
torch="$(timeout 90 python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>>"$OUT/said.txt")"
[ -n "$torch" ] || log "python3 cannot import torch: nothing here can run without it"
export LD_LIBRARY_PATH="$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
{
  echo "== canonc-torch's libraries (torch's come from $torch/lib)"
  ldd "$program"
} >>"$OUT/facts.txt" 2>&1
missing="$(grep "not found" "$OUT/facts.txt")"
if [ -n "$missing" ]; then
  log "libraries that canonc-torch needs are not found, only the steps in Python remain: $missing"
  rm -f "$program"
fi

# program_step SECONDS NAME WORD...: a step of canonc-torch, if it can start.
program_step() {
  said=""
  if [ ! -x "$program" ]; then
    log "left out: $2, canonc-torch cannot start"
    return 125
  fi
  step "$1" "$2" "$program" "${@:3}"
}

# selftest SECONDS PARTS WORD...: its results as they come, in selftest.jsonl.
selftest() {
  local folder="$WORK/selftest-$part" limit=$(($1 * PERCENT / 100)) code
  follow "$folder/selftest.jsonl" "$OUT/selftest.jsonl"
  program_step "$1" "selftest-${2/,/-}" selftest --device "$DEVICE" --parts "$2" --limit $((limit > 20 ? limit - 8 : limit)) \
    --out "$folder" --goldens "$root/tests/golden" "${@:3}"
  code=$?
  followed "$folder/selftest.jsonl" "$OUT/selftest.jsonl"
  return $code
}

# bench SECONDS ARCH SEQUENCES: the time of a training step, with its kernels.
bench() {
  local code
  program_step "$1" "bench-$2-$3" bench step "$root/arch/$2.canon" --device "$DEVICE" --dtype bf16 --batch "$3" \
    --seq-len 4096 --rounds 5
  code=$?
  [ -z "$said" ] || { echo "=== $2, $3 sequences of 4,096, code $code" && tail -n 60 "$said"; } >>"$OUT/steps.txt"
  return $code
}

# probe SECONDS SECTION: in a new process behind an entry that lost the context (code 7) or hung, at most three in all.
probe() {
  local attempt
  for attempt in 1 2 3; do
    step "$1" "probe-$2-$attempt" python3 "$probe" --gpu "$root/gpu" --out "$OUT" --only "$2"
    case $? in
    7) ;;
    124 | 137) [ "$attempt" = 1 ] || return ;;
    *) return ;;
    esac
  done
}

# peer SECONDS SLOTS: the same step in PyTorch.
peer() {
  local name="peer-llama${2:+canon}"
  step "$1" "$name" python3 "$peer" --dim 2048 --layers 24 --heads 32 --hidden 5632 --vocab 32000 --seq 4096 --batch 4 \
    --steps 5 --device "$DEVICE" --dtype bfloat16 --mode compile --canon "$2" &&
    tail -n 1 "$said" >>"$OUT/peers.jsonl"
}

case "$part" in
A)
  while read -r words; do
    echo "== $words"
    timeout 30 $words </dev/null 2>&1 | head -n 80
  done >>"$OUT/facts.txt" <<FACTS
nvidia-smi
nvidia-smi -q -d CLOCK,MEMORY,ECC
df -h $WORK
nproc
ldd --version
python3 -m torch.utils.collect_env
FACTS
  program_step 40 doctor doctor
  [ -z "$said" ] || cat "$said" >>"$OUT/facts.txt"
  probe 30 images
  probe 80 kernels
  probe 70 torch
  selftest 120 kernels,goldens
  bench 80 llama_1B 4
  bench 80 llamacanon_1B 4
  ;;
B)
  selftest 70 runs
  peer 100 ""
  peer 100 ABCD
  for arch in gdn2_1B gla5_1B mamba2_1B; do bench 60 "$arch" 2; done
  # One counter for each launch, so that none is run twice; clocks are left alone.
  [ ! -x "$program" ] ||
    step 100 ncu ncu --clock-control none --target-processes all --metrics gpu__time_duration.sum --csv \
      --log-file "$OUT/ncu.csv" --launch-skip 6000 --launch-count 3500 "$program" bench step \
      "$root/arch/llamacanon_1B.canon" --device "$DEVICE" --dtype bf16 --batch 2 --seq-len 4096 --rounds 1
  ;;
C)
  step 200 memcheck-probe compute-sanitizer --tool memcheck --print-limit 5 python3 "$probe" --gpu "$root/gpu" \
    --out "$OUT" --only kernels --tokens 4096
  follow "$WORK/selftest-C/selftest.jsonl" "$OUT/selftest.jsonl"
  [ ! -x "$program" ] ||
    step 300 memcheck-selftest compute-sanitizer --tool memcheck --print-limit 5 --target-processes all "$program" \
      selftest --device "$DEVICE" --parts kernels --each 280 --limit 290 --out "$WORK/selftest-C" --goldens "$root/tests/golden"
  followed "$WORK/selftest-C/selftest.jsonl" "$OUT/selftest.jsonl"
  ;;
esac

# What a reader needs first, last.
log "done; keep $OUT as gpu/results/DATE-CARD-COMMIT/$part"
grep -hE '"(BAD|error|CONTEXT_LOST|fatal)"' "$OUT/probe.jsonl" 2>/dev/null | cut -c1-300 | head -n 20
grep -h '"ms"' "$OUT/probe.jsonl" 2>/dev/null | tail -n 60
grep -hE '"holds": ?false|"failure": ?"' "$OUT/selftest.jsonl" 2>/dev/null | cut -c1-300 | head -n 20
tail -n 30 "$OUT/steps.txt" 2>/dev/null
tail -n 4 "$OUT/peers.jsonl" 2>/dev/null
exit 0
