"""gpu/first.sh to its end, with stand-ins for the GPU's tools, torch and canonc-torch."""

import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NVIDIA_SMI = """
case "$*" in *query-gpu*) echo "Card X, 580.0" ;; *) echo "| a table |" ;; esac
"""

# In place of python3: the probe and the peer need a GPU, anything else is Python's.
PYTHON = """
case "$1" in
*probe.py)
  shift
  while [ $# -gt 0 ]; do case "$1" in --out) out=$2 ;; --only) only=$2 ;; esac; shift; done
  if [ "$only" = kernels ] && ! grep -q CONTEXT_LOST "$out/probe.jsonl"; then
    echo '{"name": "lost kernel", "error": "700", "CONTEXT_LOST": "700"}' >>"$out/probe.jsonl"
    exit 7
  fi
  if [ "$only" = torch ] && [ -n "$CRASH" ] && [ ! -e "$CRASH" ]; then echo >"$CRASH"; kill -SEGV $$; fi
  echo "{\\"name\\": \\"all of $only\\", \\"ms\\": 1.5}" >>"$out/probe.jsonl" ;;
*peer.py) echo '{"step_s": 0.5}' ;;
-m) echo "an environment" ;;
*) exec "$REAL_PYTHON" "$@" ;;
esac
"""

# `doctor` fails, and the step of llama_1B does not end.
PROGRAM = """#!/bin/sh
case "$1 $2" in
"doctor "*) echo "no driver"; exit 3 ;;
"selftest "*)
  while [ $# -gt 0 ]; do case "$1" in --out) out=$2 ;; --parts) parts=$2 ;; esac; shift; done
  mkdir -p "$out"
  for n in 1 2; do echo "{\\"part\\": \\"$parts\\", \\"n\\": $n}" >>"$out/selftest.jsonl"; done
  if [ -n "$HANG" ]; then echo $$ >"$HANG"; exec sleep 60; fi
  echo "{\\"part\\": \\"$parts\\", \\"n\\": 3}" >>"$out/selftest.jsonl"
  echo "3 results" ;;
"bench step")
  case "$3" in */llama_1B.canon) exec sleep 60 ;; esac
  echo "step of $3: 600 ms" ;;
esac
"""


class First(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        root = self.root = self.folder / "tree"
        (root / "gpu").mkdir(parents=True)
        (root / ".gpu").mkdir()
        shutil.copy(ROOT / "gpu/first.sh", root / ".gpu")
        for name in ("probe.py", "peer.py"):
            (root / ".gpu" / name).touch()
        (root / ".gpu/canonc-torch.xz").write_bytes(lzma.compress(PROGRAM.encode()))
        (root / ".gpu/commit").write_text("abc123 clean\n")
        self.tools = self.folder / "bin"
        self.tools.mkdir()
        tools = {"nvidia-smi": NVIDIA_SMI, "python3": PYTHON, "ldd": "echo libgomp.so.1 '=>' torch/lib/libgomp.so.1"}
        tools |= {"ncu": 'while [ "$1" != --log-file ]; do shift; done; echo gpu__time_duration >"$2"'}
        tools |= {"compute-sanitizer": "echo '========= ERROR SUMMARY: 0 errors'"}
        for name, text in tools.items():
            (self.tools / name).write_text("#!/bin/sh\n" + text)
            (self.tools / name).chmod(0o755)
        torch = self.folder / "site/torch"
        torch.mkdir(parents=True)
        (torch / "__init__.py").write_text("")
        self.variables = {
            **os.environ,
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder / "site"),
            "REAL_PYTHON": sys.executable,
            "WORK": str(self.folder / "work"),
            "HANG": "",
            "CRASH": "",
            # The step that hangs has 4 of 80 s.
            "PERCENT": "12",
        }

    def run_part(self, part, **variables):
        """The log of a part, and its results."""
        out = Path(variables.get("OUT", self.folder / f"out-{part}"))
        words = ["bash", ".gpu/first.sh", part]
        environment = {**self.variables, "OUT": str(out), **variables}
        done = subprocess.run(words, cwd=self.root, env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_comes_back(out)
        return (out / "log.txt").read_text(), out

    def assert_comes_back(self, out):
        files = [path for path in out.rglob("*") if path.is_file()]
        self.assertLessEqual(len(files), 8, files)
        self.assertTrue(all(path.parent == out for path in files), files)
        for name in ("log.txt", "facts.txt", "said.txt"):
            first = (out / name).read_text().splitlines()[0]
            self.assertRegex(first, r"^\d{4}-\d\d-\d\dT[\d:]+Z, Card X, 580\.0, commit abc123 clean, part [ABC]$")

    def lines(self, path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_a_goes_on_after_a_failure_a_lost_context_and_a_step_that_hangs(self):
        log, out = self.run_part("A")
        self.assertIn("end doctor, code 3: no driver", log)
        self.assertIn("end probe-kernels-1, code 7", log)
        names = [row["name"] for row in self.lines(out / "probe.jsonl")]
        self.assertEqual(names, ["all of images", "lost kernel", "all of kernels", "all of torch"])
        self.assertEqual([row["n"] for row in self.lines(out / "selftest.jsonl")], [1, 2, 3])
        self.assertIn("end bench-llama_1B-4, code 124", log)
        self.assertIn("llamacanon_1B.canon: 600 ms", (out / "steps.txt").read_text())
        self.assertIn("done", log.splitlines()[-1])
        self.assertIn("torch/lib/libgomp.so.1", (out / "facts.txt").read_text())

    def test_b_runs_every_step(self):
        log, out = self.run_part("B")
        self.assertEqual([row["part"] for row in self.lines(out / "selftest.jsonl")], ["runs"] * 3)
        self.assertEqual([row["step_s"] for row in self.lines(out / "peers.jsonl")], [0.5, 0.5])
        for arch in ("gdn2_1B", "gla5_1B", "mamba2_1B"):
            self.assertIn(f"{arch}.canon: 600 ms", (out / "steps.txt").read_text())
        self.assertIn("gpu__time_duration", (out / "ncu.csv").read_text())
        self.assertIn("end ncu, code 0", log)

    def test_c_runs_every_step(self):
        log, _ = self.run_part("C")
        self.assertIn("end memcheck-probe, code 0", log)
        self.assertIn("end memcheck-selftest, code 0", log)

    def test_without_its_libraries_the_steps_in_python_remain(self):
        (self.tools / "ldd").write_text("#!/bin/sh\necho 'libgomp.so.1 => not found'\n")
        log, out = self.run_part("A")
        self.assertIn("libgomp.so.1 => not found", log)
        self.assertIn("left out: doctor, canonc-torch cannot start", log)
        self.assertIn("all of torch", (out / "probe.jsonl").read_text())
        self.assertNotIn("begin selftest", log)

    def test_what_a_damaged_pack_leaves_is_run(self):
        (self.root / ".gpu/canonc-torch.xz").write_bytes(b"not xz")
        log, out = self.run_part("A")
        self.assertIn("canonc-torch was not unpacked", log)
        self.assertIn("all of torch", (out / "probe.jsonl").read_text())

    def test_what_a_missing_pack_leaves_is_run(self):
        (self.root / ".gpu/canonc-torch.xz").unlink()
        log, out = self.run_part("A")
        self.assertIn("there is no .gpu/canonc-torch.xz: run `make gpu-pack`", log)
        self.assertNotIn("unpack", log)
        self.assertIn("all of torch", (out / "probe.jsonl").read_text())

    def test_with_neither_pack_nor_torch_nothing_is_run(self):
        (self.root / ".gpu/canonc-torch.xz").unlink()
        (self.tools / "python3").write_text("#!/bin/sh\nexit 1\n")
        words, out = ["bash", ".gpu/first.sh", "A"], self.folder / "out"
        done = subprocess.run(words, cwd=self.root, env={**self.variables, "OUT": str(out)}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("python3 has no torch", done.stdout)
        self.assertNotIn("begin", (out / "log.txt").read_text())

    def test_ends_within_its_seconds(self):
        # Five seconds: the step that hangs is cut short, and what does not fit is left out.
        out = self.folder / "out"
        words = ["bash", ".gpu/first.sh", "A", "100"]
        environment = {**self.variables, "OUT": str(out)}
        subprocess.run(words, cwd=self.root, env=environment, capture_output=True, timeout=60, check=True)
        log = (out / "log.txt").read_text()
        self.assertIn("left out: bench-llamacanon_1B-4, only", log)

    def test_a_kill_in_the_middle_leaves_what_was_finished(self):
        out, hangs = self.folder / "out", self.folder / "hangs"
        environment = {**self.variables, "OUT": str(out), "HANG": str(hangs), "PERCENT": "100"}
        words = ["bash", ".gpu/first.sh", "A"]
        script = subprocess.Popen(words, cwd=self.root, env=environment, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not hangs.exists() or not hangs.read_text() or self.finished(out) < 2:
            self.assertLess(time.monotonic(), until, "the selftest did not begin")
            time.sleep(0.05)
        script.send_signal(signal.SIGKILL)
        script.wait()
        os.kill(int(hangs.read_text()), signal.SIGKILL)
        self.assert_comes_back(out)
        self.assertEqual([row["n"] for row in self.lines(out / "selftest.jsonl")], [1, 2])
        self.assertIn("all of torch", (out / "probe.jsonl").read_text())
        self.assertIn("no driver", (out / "facts.txt").read_text())
        self.assertIn("begin selftest-kernels-goldens", (out / "log.txt").read_text())

    def finished(self, out):
        results = out / "selftest.jsonl"
        return len(results.read_text().splitlines()) if results.exists() else 0

    def test_a_second_part_adds_to_the_results_of_the_first(self):
        out = self.folder / "out"
        out.mkdir()
        # As a part leaves it that was killed.
        (out / "selftest.jsonl").write_text('{"part": "earlier", "n": 1}\n{"part": "ear')
        self.run_part("B", OUT=str(out), PERCENT="100")
        log, _ = self.run_part("C", OUT=str(out), PERCENT="100")
        self.assertIn("end selftest-runs, code 0", log)
        self.assertIn("end memcheck-probe, code 0", log)
        for name in ("log.txt", "facts.txt", "said.txt"):
            self.assertRegex((out / name).read_text(), r"(?s)clean, part B\n.*clean, part C\n")
        lines = (out / "selftest.jsonl").read_text().splitlines()
        self.assertEqual(lines[:2], ['{"part": "earlier", "n": 1}', '{"part": "ear'])
        self.assertEqual([json.loads(line)["n"] for line in lines[2:]], [1, 2, 3])

    def test_an_nvidia_smi_that_hangs_is_asked_once(self):
        asked, out = self.folder / "asked", self.folder / "out"
        text = f"#!/bin/sh\ntrap '' TERM\necho asked >>{asked}\nwhile :; do sleep 1; done\n"
        (self.tools / "nvidia-smi").write_text(text)
        words = ["bash", ".gpu/first.sh", "A"]
        environment = {**self.variables, "OUT": str(out)}
        subprocess.run(words, cwd=self.root, env=environment, capture_output=True, timeout=60, check=True)
        self.assertEqual(asked.read_text(), "asked\n")
        self.assertIn("no card, no driver", (out / "log.txt").read_text())
        self.assertIn("nvidia-smi hangs", (out / "facts.txt").read_text())
        self.assertIn("all of torch", (out / "probe.jsonl").read_text())

    def test_a_probe_that_crashes_is_started_again(self):
        log, out = self.run_part("A", CRASH=str(self.folder / "crash"))
        self.assertIn("end probe-torch-1, code 139", log)
        self.assertIn("all of torch", (out / "probe.jsonl").read_text())

    def test_a_signal_ends_the_step_too(self):
        out, hangs = self.folder / "out", self.folder / "hangs"
        environment = {**self.variables, "OUT": str(out), "HANG": str(hangs), "PERCENT": "100"}
        words = ["bash", ".gpu/first.sh", "B"]
        script = subprocess.Popen(words, cwd=self.root, env=environment, stdout=subprocess.DEVNULL)
        self.addCleanup(script.kill)
        until = time.monotonic() + 60
        while not hangs.exists() or not hangs.read_text():
            self.assertLess(time.monotonic(), until, "the selftest did not begin")
            time.sleep(0.05)
        step = Path("/proc") / hangs.read_text().strip() / "cmdline"
        self.assertTrue(step.read_bytes())
        script.send_signal(signal.SIGTERM)
        self.assertEqual(script.wait(30), 143)
        # Gone, or a zombie that nobody has waited for.
        self.assertFalse(step.exists() and step.read_bytes())
        self.assertEqual([row["n"] for row in self.lines(out / "selftest.jsonl")], [1, 2])
        self.assertIn("stopped by a signal", (out / "log.txt").read_text().splitlines()[-1])

    def test_a_closed_stdout_does_not_end_it(self):
        out, (end, stdout) = self.folder / "out", os.pipe()
        os.close(end)
        words = ["bash", ".gpu/first.sh", "C"]
        environment = {**self.variables, "OUT": str(out)}
        # Python ignores SIGPIPE; the script has to meet it.
        done = subprocess.run(words, cwd=self.root, env=environment, stdout=stdout, restore_signals=True, timeout=60)
        os.close(stdout)
        self.assertEqual(done.returncode, 0)
        self.assertIn("done", (out / "log.txt").read_text().splitlines()[-1])

    def test_without_ldd_the_program_is_run(self):
        (self.tools / "ldd").write_text("#!/bin/sh\necho 'ldd: command not found'\nexit 127\n")
        log, _ = self.run_part("B", PERCENT="100")
        self.assertIn("end selftest-runs, code 0", log)

    def test_another_part_is_refused(self):
        done = subprocess.run(["bash", ".gpu/first.sh", "D"], cwd=self.root, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "usage: gpu/first.sh A|B|C [SECONDS]\n"))


if __name__ == "__main__":
    unittest.main()
