"""gpu/pack.sh, in a repository of a few files."""

import lzma
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Pack(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "tree"
        for name in ("gpu/pack.sh", "gpu/first.sh", "gpu/probe.py", "ext/models/src/bench/peers/step.py", ".gitignore"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "files")
        self.program = Path(folder.name) / "canonc-torch"
        self.program.write_bytes(b"a program" * 1000)

    def git(self, *words):
        done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def pack(self, **variables):
        environment = {**os.environ, "PROGRAM": str(self.program), **variables}
        return subprocess.run(["gpu/pack.sh"], cwd=self.root, env=environment, capture_output=True, text=True)

    def test_holds_the_program_the_scripts_and_the_commit(self):
        done = self.pack()
        self.assertEqual(done.returncode, 0, done.stderr)
        packed = self.root / ".gpu"
        self.assertEqual(lzma.open(packed / "canonc-torch.xz").read(), self.program.read_bytes())
        self.assertEqual((packed / "commit").read_text(), self.git("rev-parse", "HEAD") + " clean\n")
        for name in ("gpu/first.sh", "gpu/probe.py"):
            self.assertEqual((packed / Path(name).name).read_bytes(), (ROOT / name).read_bytes())
        self.assertEqual((packed / "peer.py").read_bytes(), (ROOT / "ext/models/src/bench/peers/step.py").read_bytes())
        self.assertEqual(self.git("status", "--porcelain"), "", "git ignores the pack")

    def test_a_dirty_tree_is_named_as_such(self):
        (self.root / "gpu/probe.py").write_text("pass\n")
        self.assertEqual(self.pack().returncode, 0)
        self.assertTrue((self.root / ".gpu/commit").read_text().endswith(" dirty\n"))

    def total(self):
        line = next(line for line in self.pack().stdout.splitlines() if "in all" in line)
        return int(line.split()[0].replace(",", ""))

    def test_counts_new_files_and_no_ignored_ones(self):
        before = self.total()
        (self.root / "new file").write_bytes(bytes(12345))
        (self.root / "target").mkdir()
        (self.root / "target/ignored").write_bytes(bytes(99999))
        self.assertEqual(self.total() - before, 12345)

    def test_counts_the_results_of_earlier_runs(self):
        before = self.total()
        (self.root / ".gpu/out/A").mkdir(parents=True)
        (self.root / ".gpu/out/A/said.txt").write_bytes(bytes(12345))
        self.assertEqual(self.total() - before, 12345)

    def test_the_program_may_be_named_from_another_folder(self):
        environment = {**os.environ, "PROGRAM": "canonc-torch"}
        words = [str(self.root / "gpu/pack.sh")]
        done = subprocess.run(words, cwd=self.program.parent, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(lzma.open(self.root / ".gpu/canonc-torch.xz").read(), self.program.read_bytes())

    def test_too_much_is_refused_with_the_largest_files(self):
        total = self.total()
        (self.root / "large").write_bytes(bytes(50000))
        done = self.pack(LIMIT=str(total))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{total + 50000:,} bytes would travel, 50,000 more", done.stderr)
        self.assertIn("50,000  large", done.stderr.splitlines()[1])
        self.assertEqual(self.pack(LIMIT=str(total + 50000)).returncode, 0)

    def test_a_program_that_is_not_there_is_refused(self):
        done = self.pack(PROGRAM="nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("`nowhere`", done.stderr)


if __name__ == "__main__":
    unittest.main()
