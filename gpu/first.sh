#!/usr/bin/env bash
# The first minutes on a GPU: `gpu/first.sh A`, then `gpu/first.sh B`; `gpu/first.sh C` after a lost context.
#     gpu/first.sh A|B|C [SECONDS]      ends within SECONDS [550]
#
# It needs the tree and .gpu (gpu/pack.sh), and a python3 with torch 2.11. Results go to $OUT [.gpu/out/PART], at most 8
# files that are written while a step runs, so a kill loses nothing that was finished; parts with the same OUT add to
# them. Every step has a limit, none stops the others, and those of most worth come first. No setting of the card is
# changed.
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
[ -f "$peer" ] || peer="$root/ext/models/src/bench/peers/step.py"
everything=$((${2:-550} * PERCENT / 100)) # seconds
kept=400000                               # bytes that a step may say

# Nobody may be reading stdout: what it says is in the files too. A handler, as children would inherit that PIPE is ignored.
trap : PIPE
{ : >&1; } 2>/dev/null || exec >/dev/null

log() {
  local line
  line="[$(date -u +%T) +${SECONDS} s] $*"
  echo "$line" >>"$OUT/log.txt"
  echo "$line" 2>/dev/null
}

# A step runs in the background, in the process group that `timeout` makes, so that a signal ends it too.
running="" facts="" following=""
stopped() {
  trap '' TERM INT HUP
  log "stopped by a signal"
  local process
  for process in $running $facts; do kill "$process" 2>/dev/null; done
  [ -z "$running" ] || sleep 1
  for process in $running $facts; do kill -KILL -- "-$process" 2>/dev/null; done
  [ -z "$following" ] || followed
  exit 143
}
trap stopped TERM INT HUP
await() { # the last process that was started
  local code
  running=$!
  wait "$running"
  code=$?
  running=""
  return $code
}

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
  timeout -k 5 "$limit" "$@" >>"$OUT/said.txt" 2>&1 </dev/null &
  await
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

# follow FILE COPY: what is written to FILE is added to COPY at once, also if this script is killed.
follow() {
  source="$1" copy="$2"
  mkdir -p "$(dirname "$source")"
  rm -f "$source"
  # A part that was killed may have left half a line.
  [ -z "$(tail -c 1 "$copy" 2>/dev/null)" ] || echo >>"$copy"
  copied=$(stat -c %s "$copy" 2>/dev/null || echo 0)
  tail -n +1 -s 0.2 -F --pid=$$ "$source" >>"$copy" 2>/dev/null &
  following=$!
}
followed() {
  kill "$following" 2>/dev/null
  wait "$following" 2>/dev/null
  following=""
  copied=$(($(stat -c %s "$copy" 2>/dev/null || echo 0) - copied))
  [ ! -f "$source" ] || tail -c +$((copied + 1)) "$source" >>"$copy"
  [ -s "$copy" ] || rm -f "$copy"
}

# What the driver says of the card; empty fields without one. Where this hangs, nvidia-smi is not asked again.
card_limit=$((15 * PERCENT / 100))
card="$(timeout -k 2 $((card_limit > 3 ? card_limit : 3)) nvidia-smi --query-gpu=name,driver_version \
  --format=csv,noheader 2>/dev/null)"
case $? in 124 | 137) hangs=1 ;; *) hangs="" ;; esac
card="${card%%$'\n'*}"
heading="$(date -u +%FT%TZ), ${card:-no card, no driver}, commit $(cat "$root/.gpu/commit" 2>/dev/null || echo unknown)"
heading="$heading, part $part"
for file in log facts said; do echo "$heading" >>"$OUT/$file.txt"; done
echo "$heading" 2>/dev/null
[ -z "$hangs" ] || log "nvidia-smi hangs: it is not asked again"
# Found, not imported: that can take a minute.
torch="$(timeout -k 2 10 python3 -c 'import importlib.util, os
print(os.path.dirname(importlib.util.find_spec("torch").origin))' 2>>"$OUT/said.txt")"
[ -n "$torch" ] || log "python3 has no torch: nothing here can run without it"
pack="$root/.gpu/canonc-torch.xz"
if [ ! -f "$pack" ]; then
  log "there is no .gpu/canonc-torch.xz: run \`make gpu-pack\` where Rust is, and copy .gpu here with the tree"
  [ -n "$torch" ] || exit 3
fi

# The program, unless this machine has it from an earlier call.
unpack() {
  local packed libraries missing
  if [ ! -f "$pack" ]; then
    rm -f "$program"
    return
  fi
  packed="$(cksum <"$pack")"
  if [ ! -x "$program" ] || [ "$packed" != "$(cat "$WORK/packed" 2>/dev/null)" ]; then
    log "unpack canonc-torch"
    timeout -k 2 60 python3 -c 'import lzma, shutil, sys
shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"), 1 << 20)' "$pack" "$program" \
      2>>"$OUT/said.txt" &
    if await && chmod +x "$program"; then
      echo "$packed" >"$WORK/packed"
    else
      log "canonc-torch was not unpacked: only the steps in Python remain"
      rm -f "$program"
    fi
  fi
  export LD_LIBRARY_PATH="$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  libraries="$(timeout -k 2 10 ldd "$program" 2>&1)"
  printf '%s\n' "== canonc-torch's libraries (torch's come from $torch/lib)" "$libraries" >>"$OUT/facts.txt"
  missing="$(grep -E '=> not found|version .* not found' <<<"$libraries")"
  if [ -n "$missing" ]; then
    log "libraries that canonc-torch needs are not found, only the steps in Python remain: $missing"
    rm -f "$program"
  fi
}

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
  followed
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

# probe SECONDS SECTION: in a new process behind an entry that lost the context (code 7), crashed or hung, at most three in all.
probe() {
  local attempt
  for attempt in 1 2 3; do
    step "$1" "probe-$2-$attempt" python3 "$probe" --gpu "$root/gpu" --out "$OUT" --only "$2"
    case $? in
    7) ;;
    124 | 134 | 137 | 139) [ "$attempt" = 1 ] || return ;;
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
  asked="nvidia-smi
nvidia-smi -q -d CLOCK,MEMORY,ECC
python3 -m torch.utils.collect_env" # asks nvidia-smi
  [ -z "$hangs" ] || asked="echo nvidia-smi hangs"
  left=$((everything - SECONDS - 3))
  # Beside the first probe, which times nothing.
  timeout -k 2 $((left < 1 ? 1 : left < 60 ? left : 60)) bash -c 'while read -r words; do
    echo "== $words"
    timeout --foreground -k 2 30 $words </dev/null 2>&1 | head -n 80
  done' >>"$OUT/facts.txt" 2>&1 <<FACTS &
df -h $WORK
nproc
ldd --version
$asked
FACTS
  facts=$!
  probe 30 images
  unpack
  program_step 40 doctor doctor
  [ -z "$said" ] || cat "$said" >>"$OUT/facts.txt"
  probe 80 kernels
  probe 70 torch
  selftest 120 kernels,goldens
  bench 80 llama_1B 4
  bench 80 llamacanon_1B 4
  wait "$facts"
  facts=""
  ;;
B)
  unpack
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
  unpack
  step 200 memcheck-probe compute-sanitizer --tool memcheck --print-limit 5 python3 "$probe" --gpu "$root/gpu" \
    --out "$OUT" --only kernels --tokens 4096
  follow "$WORK/selftest-C/selftest.jsonl" "$OUT/selftest.jsonl"
  [ ! -x "$program" ] ||
    step 300 memcheck-selftest compute-sanitizer --tool memcheck --print-limit 5 --target-processes all "$program" \
      selftest --device "$DEVICE" --parts kernels --each 280 --limit 290 --out "$WORK/selftest-C" --goldens "$root/tests/golden"
  followed
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
