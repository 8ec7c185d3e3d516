"""What docs/ci.md gives people to copy, used as they would use it: the workflow's commands, and the hooks of pre-commit.

CANONC_WHEEL names the wheel, CANONC_BARE an environment with it alone, and CANONC_TOOLS one with pre-commit. Needs git.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHEEL = Path(os.environ["CANONC_WHEEL"])
BARE = Path(os.environ["CANONC_BARE"])
TOOLS = Path(os.environ["CANONC_TOOLS"])
WORKFLOW = ROOT / "docs" / "canonc-ci.yml"


class Copied(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.home = Path(self.folder.name)
        self.project = self.home / "project"
        self.done("canonc", "new", str(self.project), cwd=self.home)
        self.done("canonc", "build", "recipes/depo.toml", "recipes/depo_first.toml", "recipes/depo_firstcanon.toml")

    def run_it(self, *words: str, cwd: Path | None = None, python: Path = BARE) -> subprocess.CompletedProcess[str]:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CANONC_"))}
        variables["PATH"] = os.pathsep.join([str(python / "bin"), os.environ["PATH"], str(TOOLS / "bin")])
        variables |= {"HOME": str(self.home), "PRE_COMMIT_HOME": str(self.home / "cache"), "GIT_CONFIG_NOSYSTEM": "1"}
        for who in ("AUTHOR", "COMMITTER"):
            variables |= {f"GIT_{who}_NAME": "Ada", f"GIT_{who}_EMAIL": "ada@example.org"}
        return subprocess.run(
            words, cwd=cwd or self.project, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    def done(self, *words: str, cwd: Path | None = None) -> str:
        ran = self.run_it(*words, cwd=cwd)
        self.assertEqual(ran.returncode, 0, f"{words}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def edit(self, name: str, old: str, new: str) -> None:
        file = self.project / name
        self.assertIn(old, file.read_text())
        file.write_text(file.read_text().replace(old, new))

    def test_the_workflow_passes_a_good_project_and_stops_the_others(self) -> None:
        commands = re.findall(r"^ *- run: (.+)$", WORKFLOW.read_text(), re.MULTILINE)
        self.assertEqual(len(commands), 4)
        (self.project / "ci").mkdir()
        shutil.copy(WHEEL, self.project / "ci")
        runner = self.home / "runner"
        self.done(sys.executable, "-m", "venv", str(runner))
        installed = self.run_it("bash", "-c", commands.pop(0), python=runner)
        self.assertEqual(installed.returncode, 0, installed.stderr)
        self.assertTrue((runner / "bin" / "canonc").exists(), installed.stdout)
        shutil.rmtree(self.project / "ci")

        def exits() -> list[int]:
            return [self.run_it("bash", "-c", command).returncode for command in commands]

        self.assertEqual(exits(), [0, 0, 0])
        self.edit("recipes/depo_first.toml", "lr = 0.003", "lr = 0.001")
        self.assertEqual(exits(), [0, 1, 0])
        self.done("canonc", "build", "recipes/depo_first.toml")
        self.assertEqual(exits(), [0, 1, 1])  # the comparison and the pair are confounded
        self.edit("arch/first.canon", "arch first", "arch  first")
        self.assertEqual(exits()[0], 1)

    def test_the_hooks_of_pre_commit(self) -> None:
        hooks = self.home / "hooks"
        hooks.mkdir()
        shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
        for folder in (hooks, self.project):
            self.done("git", "init", "--quiet", cwd=folder)
            self.done("git", "add", "--all", cwd=folder)
            self.done("git", "commit", "--quiet", "--message", "start", cwd=folder)
        revision = self.done("git", "rev-parse", "HEAD", cwd=hooks).strip()
        config = [f"repos:\n- repo: {hooks}\n  rev: {revision}\n  hooks:\n"]
        config += [f"  - id: {name}\n" for name in ("canonc-build", "canonc-check", "canonc-fmt")]
        (self.project / ".pre-commit-config.yaml").write_text("".join(config))
        self.done("git", "add", "--all")
        said = self.done("pre-commit", "run", "--all-files")
        self.assertEqual(said.count("Passed"), 3, said)
        self.done("pre-commit", "install")
        self.edit("recipes/depo_first.toml", "lr = 0.003", "lr = 0.001")
        self.done("git", "add", "--all")
        refused = self.run_it("git", "commit", "--message", "a rate")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("lockfiles/depo_first.lock: stale", refused.stdout + refused.stderr)


if __name__ == "__main__":
    unittest.main()
