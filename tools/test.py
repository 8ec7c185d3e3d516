"""Builds and runs every test that needs no Python environment, several test programs at a time: `make test`.

`cargo test` runs one program after another, and the slowest test of each leaves a core idle. Here the longest programs,
by the times of the last run, start first, and the documentation's examples run beside them. Each program's output is
printed when it ends, and a table of times at the end. Exit code 1 if a test failed.

Options: words after `--` are passed to each program, such as part of a test's name.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CARGO = os.environ.get("CARGO", "cargo")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
TIMES = os.path.join(TARGET, "test-times.json")
# Programs of which the last run says nothing start first.
UNKNOWN = 1e9


def built():
    """The test programs as (name, path, folder of the package)."""
    command = [CARGO, "test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]
    cargo = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    programs = []
    for line in cargo.stdout:
        artifact = json.loads(line) if line.startswith("{") else {}
        if artifact.get("executable") and artifact["profile"]["test"]:
            folder = os.path.dirname(artifact["manifest_path"])
            target = artifact["target"]
            package = os.path.relpath(folder, ROOT)
            programs.append((f"{package} {target['kind'][0]} {target['name']}", artifact["executable"], folder))
    if cargo.wait() != 0:
        sys.exit(cargo.returncode)
    if not programs:
        sys.exit("error: cargo built no test program, so there is nothing to run")
    return programs


def variables():
    """Those that cargo would set: `[env]` of .cargo/config.toml, but for LIBTORCH, which only a build reads."""
    with open(os.path.join(ROOT, ".cargo", "config.toml"), "rb") as file:
        table = tomllib.load(file)["env"]
    plain = {name: value for name, value in table.items() if isinstance(value, str)}
    return {name: value for name, value in plain.items() if name not in os.environ}


def main():
    words = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    programs = built()
    jobs = [(name, [path, *words], folder, {"CARGO_MANIFEST_DIR": folder}) for name, path, folder in programs]
    if not words:
        jobs.append(("examples in the documentation", [CARGO, "test", "--workspace", "--doc"], ROOT, {}))
    try:
        with open(TIMES, encoding="utf-8") as file:
            before = json.load(file)
    except (OSError, ValueError):
        before = {}
    jobs.sort(key=lambda job: -before.get(job[0], UNKNOWN))
    environment = {**os.environ, **variables()}
    lock, times, failed = threading.Lock(), {}, []

    def work():
        while True:
            with lock:
                if not jobs:
                    return
                name, command, folder, more = jobs.pop(0)
            start = time.monotonic()
            with tempfile.TemporaryFile() as output:
                ended = subprocess.run(
                    command, cwd=folder, env={**environment, **more}, stdout=output, stderr=subprocess.STDOUT
                )
                seconds = time.monotonic() - start
                output.seek(0)
                text = output.read().decode("utf-8", "replace")
            with lock:
                print(f"\n     Running {name}\n{text.rstrip()}", flush=True)
                times[name] = seconds
                if ended.returncode != 0:
                    failed.append(f"{name}: exit code {ended.returncode}")

    start = time.monotonic()
    workers = [threading.Thread(target=work) for _ in range(max(2, os.cpu_count() or 1))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("\nseconds  program")
    for name, seconds in sorted(times.items(), key=lambda item: -item[1])[:12]:
        print(f"{seconds:7.1f}  {name}")
    print(f"{time.monotonic() - start:7.1f}  all {len(times)}")
    if not words:
        with open(TIMES, "w", encoding="utf-8") as file:
            json.dump({**before, **times}, file, indent=1)
    for line in failed:
        print(f"error: {line}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
