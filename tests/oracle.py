#!/usr/bin/env python3
"""What this program computes, as a list of digests: a refactoring prints the same list before and after.

`tests/oracle.py` prints one line for each: the ids and bytes of all committed locks, the plans of all archs in f32 and
bf16, the weights, moments and logs of short runs, the help of every command, and the output of every command that has
`--json`. `make oracle` compares the list with tests/oracle.txt and shows the lines that differ. `--texts DIR` also
writes each text that was digested, so that two folders can be compared with `diff -r`.

Bits of runs depend on the instruction sets of the CPU: their lines, and those of what is computed or exported from
them, begin with the kind of machine, and a machine of another kind than those in the list is told so.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
EXPECTED = ROOT / "tests" / "oracle.txt"

# A task that the vocabulary of every committed arch has room for.
RECIPE = """arch = "{arch}"
[data]
task = "depo"
depo.N = 4
depo.K = 1
depo.mini_vocab = 4
depo.min_tlen = 1
depo.max_tlen = 2
ids = "dense"
seq_len = 48
[batch]
sequences = 6
micro_batches = 3
[budget]
steps = 6
[optimizer]
lr = 0.01
weight_decay = 0.1
[schedule]
kind = "cosine"
warmup = 2
[seeds]
init = 1
data = 2
[evaluation]
every = 3
windows = 2
[checkpoint]
every = 3
[log]
every = 1
[precision]
policy = "{policy}"
[platform]
threads = 1
recompute = "{recompute}"
"""

COMPARISON = """base = "plain"
treatment = ["canon"]
[arms]
plain = "llama.toml"
canon = "llamacanon.toml"
[seeds]
init = [1, 2]
data = [1, 2]
eval = [0]
"""

FAMILIES = {
    "llama": "arch/llamacanon_demo.canon",
    "gla": "arch/glacanon_demo.canon",
    "gdn": "arch/gdncanon_demo.canon",
    "mamba2": "arch/mamba2canon_demo.canon",
}
# (name, family, policy, ranks)
RUNS = [(f"{family}_{policy}", family, policy, 1) for family in FAMILIES for policy in ("f32", "bf16")]
RUNS += [(f"{family}_f32_3_ranks", family, "f32", 3) for family in FAMILIES]

TASKS = {
    "brevo": ["N=12"],
    "capo": ["N=50"],
    "depo": ["N=8", "K=2", "mini_vocab=4", "min_tlen=1", "max_tlen=2"],
    "lano": ["config=cfg3f"],
    "mano": ["L=4"],
    "multihop": ["N=4", "hops=2"],
}

# What an export is of, and its target.
EXPORTS = [
    ("runs/llama_f32", "hf"), ("runs/llama_f32", "torch"), ("runs/llama_f32", "lingua"), ("runs/gdn_f32", "hf"),
    ("runs/mamba2_f32", "hf"), ("lockfiles/gla_f32.lock", "torch"), ("lockfiles/llama_f32.lock", "card"),
    ("lockfiles/llama_f32.lock", "slurm"),
]

# Values of JSON that a clock or the memory of a process decides, by key.
VARIES = {
    "disk_bytes", "evaluation_seconds", "memory_bytes", "peak_memory_bytes", "seconds", "step_seconds", "training_seconds",
}


class Oracle:
    def __init__(self, texts, work):
        self.texts, self.work, self.lines = texts, work, []

    def add(self, name, text):
        data = text if isinstance(text, bytes) else text.encode()
        data = data.replace(str(self.work).encode(), b"WORK").replace(str(ROOT).encode(), b"ROOT")
        if self.texts:
            path = self.texts / re.sub(r"[^A-Za-z0-9_.=-]+", "_", name)
            path.write_bytes(data)
        self.lines.append(f"{name} {hashlib.sha256(data).hexdigest()[:16]}")


def environment():
    chosen = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_"))}
    return chosen | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "100", "NO_COLOR": "1"}


def canonc(words, cwd=ROOT, codes=(0,)):
    """Standard output of a command; its exit code has to be one of `codes`."""
    done = subprocess.run(
        [TARGET / "debug" / "canonc", *words], cwd=cwd, env=environment(), capture_output=True, stdin=subprocess.DEVNULL
    )
    if done.returncode not in codes:
        sys.exit(f"canonc {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr.decode()}")
    return done.stdout


def steady(value, key=""):
    """JSON without the values that differ from one run of the command to the next."""
    if isinstance(value, dict):
        # The comparison's own measurement of time.
        if "step time" in value.values():
            return "a measurement of time"
        return {k: steady(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [steady(item, key) for item in value]
    if key in VARIES and value is not None:
        return f"a {type(value).__name__}"
    # Which of the vector instructions a kernel used is this machine's.
    if isinstance(value, str) and value.startswith("fused/"):
        return "fused"
    return value


def together(function, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def locks(oracle):
    """Committed locks are what their sources give today, so their bytes are what `build` writes."""
    canonc(["build", "--check"])
    for path in sorted((ROOT / "lockfiles").rglob("*.lock")):
        ids = re.findall(rb'^(?:id|graph|manifest) = "([0-9a-f]+)"', path.read_bytes(), re.M)
        oracle.add(f"lock {path.relative_to(ROOT / 'lockfiles')} {ids[0][:8].decode() if ids else '-'}", path.read_bytes())


def archs():
    for path in sorted((ROOT / "arch").glob("*.canon")):
        for name in re.findall(r"^arch (\w+)", path.read_text(), re.M):
            yield path, name


def plans(oracle, work):
    """Training plans of every arch, by way of a lock, since precision and recomputation are settings of an experiment."""

    def plan(case):
        path, name, policy, recompute = case
        recipe = work / f"plan_{name}_{policy}_{recompute}.toml"
        recipe.write_text(RECIPE.format(arch=f"arch/{path.name}#{name}", policy=policy, recompute=recompute))
        canonc(["build", recipe.name], cwd=work)
        return canonc(["graph", f"lockfiles/{recipe.stem}.lock", "--plan"], cwd=work)

    cases = [(path, name, policy, "nothing") for path, name in archs() for policy in ("f32", "bf16")]
    demos = [(path, name) for path, name in archs() if name.endswith("_demo")]
    cases += [(path, name, "f32", how) for path, name in demos for how in ("layers", "selective")]
    for (path, name, policy, how), text in zip(cases, together(plan, cases)):
        oracle.add(f"plan {name} {policy} {how}", text)


def runs(oracle, work):
    kind = machine()

    def train(case):
        name, family, policy, ranks = case
        recipe = work / f"{name}.toml"
        recipe.write_text(RECIPE.format(arch=FAMILIES[family], policy=policy, recompute="nothing"))
        canonc(["build", recipe.name], cwd=work)
        # Ranks change no lock: without a folder of its own, the run of one rank would be found finished.
        words = ["run", "--lock", f"lockfiles/{name}.lock", "--dir", f"runs/{name}"]
        canonc(words + (["--ranks", str(ranks)] if ranks > 1 else []), cwd=work)

    together(train, RUNS)
    for name, *_ in RUNS:
        checkpoint = sorted((work / "runs" / name / "checkpoints").glob("step-*"))[-1]
        for file in ("weights", "first_moment", "second_moment"):
            oracle.add(f"{kind} run {name} {file}", (checkpoint / f"{file}.safetensors").read_bytes())
        log = (work / "runs" / name / "metrics.jsonl").read_bytes()
        oracle.add(f"{kind} run {name} metrics", log)


def machine():
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return next((kind for kind in ("amx_tile", "avx512f", "avx2") if kind in flags), "other")


def commands(path=()):
    """Every command and what is below it, as `--help` lists them."""
    yield path
    text = canonc([*path, "--help"]).decode()
    listed = re.split(r"^(?:Options|Examples|Arguments):", text, flags=re.M)[0] if not path else text
    section = listed if not path else (re.search(r"^Commands:\n((?:  .*\n|\n)*)", text, re.M) or [None, ""])[1]
    for word in re.findall(r"^  ([a-z][a-z-]*)  ", section, re.M):
        if word != "help" or not path:
            yield from commands((*path, word))


def helps(oracle):
    for path in commands():
        oracle.add(f"help {' '.join(path) or '-'}", canonc([*path, "--help"]) + (canonc([*path, "-h"])))
    for shell in ("bash", "zsh", "fish"):
        oracle.add(f"completions {shell}", canonc(["completions", shell]))


def outputs(oracle, work):
    """Every command with `--json`, over runs that this script trained."""
    header = json.dumps({"tokens": {"dtype": "I64", "shape": [1, 4], "data_offsets": [0, 32]}}).encode()
    tokens = struct.pack("<Q", len(header)) + header + struct.pack("<4q", 1, 2, 3, 4)
    (work / "tokens.safetensors").write_bytes(tokens)
    llama, canon = "lockfiles/demo_llama.lock", "lockfiles/demo_llamacanon.lock"
    cases = [
        ("check", ["check", "--json"], ROOT, (0,)),
        ("show", ["show", "arch/llamacanon_1B.canon", "--json"], ROOT, (0,)),
        ("show fields", ["show", "--fields", "arch/hybridcanon_1B.canon", "--json"], ROOT, (0,)),
        ("show recipe fields", ["show", "--recipe-fields", "--json"], ROOT, (0,)),
        ("show ranks", ["show", "lockfiles/GDN2Canon-1B-Nemo-1T-lr0.002.lock", "--ranks", "8", "--json"], ROOT, (0,)),
        ("graph", ["graph", "arch/llamacanon_1B.canon"], ROOT, (0,)),
        ("graph svg", ["graph", "arch/llamacanon_1B.canon", "--format", "svg"], ROOT, (0,)),
        ("graph dot", ["graph", "arch/hybridcanon_1B.canon", "--format", "dot"], ROOT, (0,)),
        ("graph artifacts", ["graph", "--artifacts"], ROOT, (0, 1)),
        ("build", ["build", "--check", "--json"], ROOT, (0,)),
        ("diff", ["diff", llama, canon, "--treatment", "canon", "--json"], ROOT, (0,)),
        ("diff confounded", ["diff", llama, "lockfiles/demo_gla.lock", "--json"], ROOT, (1,)),
        ("audit", ["audit", "lockfiles", "--json"], ROOT, (0, 1)),
        ("audit published", ["audit", "--published", "--json"], ROOT, (0, 1)),
        ("audit list", ["audit", "--list"], ROOT, (0,)),
        ("data overlap", ["data", "overlap", "recipes/cpu_mano.toml", "--json"], ROOT, (0, 1)),
        ("data windows", ["data", "export", llama, "--count", "2"], ROOT, (0,)),
        ("run dry", ["run", "--lock", "lockfiles/llama_f32.lock", "--dry-run", "--json"], work, (0,)),
        ("verify", ["verify", "runs/llama_f32", "--json"], work, (0,)),
        ("verify replay", ["verify", "runs/llama_f32", "--replay", "all", "--json"], work, (0,)),
        ("reproduce", ["reproduce", "runs/gdn_f32", "--json"], work, (0,)),
        ("forward", ["forward", "runs/llama_f32", "--tokens", "tokens.safetensors", "--out", "forward.safetensors", "--json"], work, (0,)),
        ("eval", ["eval", "runs/llama_f32", "--suite", "task", "--json"], work, (0,)),
        ("generate", ["generate", "runs/llama_f32", "--prompt-tokens", "1,2,3", "--max-tokens", "8", "--json"], work, (0,)),
        ("doctor", ["doctor", "--json"], ROOT, (0, 1)),
    ]
    for task, settings in TASKS.items():
        sets = [word for setting in settings for word in ("--set", setting)]
        cases.append((f"data generate {task}", ["data", "generate", task, *sets, "--count", "5"], ROOT, (0,)))
        cases.append((f"data inspect {task}", ["data", "inspect", task, *sets, "--count", "2"], ROOT, (0,)))
        cases.append((f"data stats {task}", ["data", "stats", task, *sets, "--count", "50", "--json"], ROOT, (0,)))
    for name, words, folder, codes in cases:
        text = canonc(words, cwd=folder, codes=codes).decode()
        if "--json" in words:
            value = json.loads(text)
            text = json.dumps(keys(value) if name == "doctor" else steady(value), indent=1)
        # These show bits of what was trained.
        kind = f"{machine()} " if name in ("forward", "eval") else ""
        oracle.add(f"{kind}output {name}", text)
    for what, target in EXPORTS:
        out = f"{target}_of_{pathlib.Path(what).stem}"
        canonc(["export", what, "--to", target, "--out", out], cwd=work)
        kind = f"{machine()} " if what.startswith("runs/") else ""
        oracle.add(f"{kind}export {what} {target}", digests(work / out))
    foreign = [work / "lingua_of_llama_f32", *sorted((ROOT / "tests/golden").glob("*/*"))]
    models = ("config.json", "default")
    for folder in [folder for folder in foreign if any((folder / name).exists() for name in models)]:
        out = work / f"from_{folder.name}"
        text = canonc(["import", folder, "--out", out, "--json"], cwd=work)
        kind = f"{machine()} " if folder.parent == work else ""
        oracle.add(f"{kind}import {folder.name}", json.dumps(steady(json.loads(text)), indent=1) + digests(out))
    comparison(oracle, work)


def digests(folder):
    """The digest of every file of a folder."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return "\n".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()} {file.relative_to(folder)}" for file in files)


def comparison(oracle, work):
    """A comparison of two arms and two seeds, trained and shown."""
    for arm in ("llama", "llamacanon"):
        recipe = RECIPE.format(arch=f"arch/{arm}_demo.canon", policy="f32", recompute="nothing")
        (work / f"{arm}.toml").write_text(recipe)
    (work / "twins.toml").write_text(COMPARISON)
    canonc(["build", "twins.toml"], cwd=work)
    text = canonc(["compare", "lockfiles/twins.lock", "--json"], cwd=work)
    oracle.add("output compare", json.dumps(steady(json.loads(text)), indent=1))
    table = canonc(["compare", "lockfiles/twins.lock"], cwd=work).decode().split("\n")
    oracle.add("output compare table", "\n".join(line for line in table if " ms " not in line))
    canonc(["report", "runs/twins", "--out", "page.html"], cwd=work)
    page = (work / "page.html").read_text()
    oracle.add("report", re.sub(r"\d+", "0", page))
    oracle.add("output plan", canonc(["plan", "lockfiles/twins.lock", "--effect", "0.5", "--noise", "0.1", "--json"], cwd=work))


def keys(value):
    """The keys of JSON, without values."""
    if isinstance(value, dict):
        return {k: keys(v) for k, v in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value else type(value).__name__


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="compare with tests/oracle.txt; exit 1 if a line differs")
    parser.add_argument("--texts", type=pathlib.Path, metavar="DIR", help="also write each text")
    asked = parser.parse_args()
    if asked.texts:
        asked.texts.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        oracle = Oracle(asked.texts, work)
        shutil.copytree(ROOT / "arch", work / "arch")
        locks(oracle)
        helps(oracle)
        plans(oracle, work)
        runs(oracle, work)
        outputs(oracle, work)
    if not asked.check:
        print("\n".join(oracle.lines))
        return
    kind = machine() + " "
    kinds = ("amx_tile ", "avx512f ", "avx2 ", "other ")
    expected = EXPECTED.read_text().split("\n")
    if not any(line.startswith(kind) for line in expected):
        print(f"tests/oracle.txt has no runs of this kind of machine ({kind.strip()}): print a list before the change")
    of_here = [line for line in expected if line and (line.startswith(kind) or not line.startswith(kinds))]
    gone = [line for line in of_here if line not in oracle.lines]
    new = [line for line in oracle.lines if line not in of_here]
    for line in gone:
        print(f"- {line}")
    for line in new:
        print(f"+ {line}")
    print(f"{len(oracle.lines)} lines, {len(gone)} gone, {len(new)} new")
    sys.exit(1 if gone or new else 0)


main()
