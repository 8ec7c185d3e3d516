"""The scripts that build programs for other machines: what they accept and refuse.

A script stands in for the compiler, so nothing is compiled. Needs git and make.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Runs instead of cargo. Its program contains $SAYS, and a file of each folder in $NAMES as a compiler would name it.
CARGO = r"""#!/usr/bin/env bash
set -eu
[ "$1" = build ] || exit 0
while [ "$1" != --target-dir ]; do shift; done
mkdir -p "$2/release"
{
  printf '%s\0' "${SAYS:-}"
  for folder in ${NAMES:-}; do
    [ "$folder" != CLONE ] || folder="$PWD"
    name="$folder"
    for word in $CXXFLAGS; do
      word="${word#-ffile-prefix-map=}"
      case "$folder/" in "${word%=*}"/*) name="${word##*=}${folder#"${word%=*}"}" ;; esac
    done
    printf '%s/file.h\0' "$name"
  done
  [ -z "${FOLDER_IN_PROGRAM:-}" ] || printf '%s' "$2" | wc -c
  printf '%s' "$SOURCE_DATE_EPOCH"
} > "$2/release/canonc"
echo "$RUSTFLAGS" > "$2/flags"
"""
RUSTC = r"""#!/usr/bin/env bash
case "$2" in sysroot) echo "$RUST" ;; *) echo x86_64-unknown-linux-gnu ;; esac
"""


class Packaging(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name).resolve()
        self.clone = self.clone_at("clone")
        self.registry = self.home / "cargo" / "registry" / "src" / "mirror.example.org-0123456789abcdef"
        self.registry.mkdir(parents=True)
        self.torch = self.home / "torch"
        self.torch.mkdir()
        tools = self.home / "tools"
        tools.mkdir()
        for name, text in (("cargo", CARGO), ("rustc", RUSTC)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        hidden = ("CARGO", "RUST", "GIT_", "LIBTORCH", "CFLAGS", "CXXFLAGS", "SOURCE_DATE_EPOCH", "MAKE", "BINARIES")
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.variables |= {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "CARGO_HOME": str(self.home / "cargo"),
            "LIBTORCH": str(self.torch),
            "RUST": str(self.home / "rust"),
            "SOURCE_DATE_EPOCH": "1700000000",
        }

    def clone_at(self, name: str) -> Path:
        clone = self.home / name
        clone.mkdir()
        shutil.copytree(ROOT / "tools/packaging", clone / "tools/packaging")
        shutil.copy(ROOT / "Makefile", clone)
        return clone

    def run_it(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.variables, **variables}
        return subprocess.run(
            words, cwd=self.home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    def binaries(self, clone: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run_it((clone or self.clone) / "tools/packaging/binaries.sh", **variables)

    def test_each_folder_has_another_name_in_the_programs(self) -> None:
        names = {
            self.clone: "/canonc",
            self.clone / "target" / "packaging": "/canonc/target/packaging",
            self.home / "cargo": "/cargo",
            self.registry: "/cargo/src",
            self.home / "rust": "/rust",
            self.torch: "/canonc/third_party/libtorch/torch",
        }
        done = self.binaries(NAMES=" ".join(map(str, names)))
        self.assertEqual(done.returncode, 0, done.stderr)
        program = (Path(done.stdout.strip()) / "canonc").read_text()
        self.assertEqual(program.split("\0")[1:-1], [f"{name}/file.h" for name in names.values()])
        flags = (self.clone / "target" / "packaging" / "flags").read_text().split()
        for folder, name in names.items():
            self.assertIn(f"--remap-path-prefix={folder}={name}", flags)

    def test_a_target_folder_elsewhere_and_a_linked_libtorch(self) -> None:
        target, link = self.home / "elsewhere", self.home / "link"
        link.symlink_to(self.torch)
        names = f"{target}/packaging {link} {self.torch}"
        done = self.binaries(NAMES=names, CARGO_TARGET_DIR=str(target), LIBTORCH=str(link))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"{target}/packaging/release\n")
        program = (target / "packaging" / "release" / "canonc").read_text().split("\0")[1:-1]
        expected = ["target/packaging", "third_party/libtorch/torch", "third_party/libtorch/torch"]
        self.assertEqual(program, [f"/canonc/{name}/file.h" for name in expected])

    def test_a_program_with_a_folder_of_this_machine_is_refused(self) -> None:
        target = self.home / "elsewhere"
        left = (self.clone, target / "packaging", self.home / "cargo", self.home / "rust", self.torch, self.registry)
        for folder in (*left, "/cargo/registry/src/mirror.example.org-0"):
            with self.subTest(folder=folder):
                done = self.binaries(SAYS=f"{folder}/x.rs", CARGO_TARGET_DIR=str(target))
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn("names a folder of this machine: ", done.stderr)

    def test_a_clone_in_a_folder_of_the_replaced_name(self) -> None:
        # As for a clone at /canonc, the clone's folder and its name in the programs are the same.
        script = self.clone / "tools/packaging/binaries.sh"
        text = script.read_text()
        self.assertIn('replace "$clone" /canonc\n', text)
        script.write_text(text.replace('replace "$clone" /canonc\n', 'replace "$clone" "$clone"\n'))
        done = self.binaries(SAYS=f"{self.clone}/x.rs")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_folders_with_spaces_are_refused_before_the_build(self) -> None:
        spaced = self.home / "a b"
        spaced.mkdir()
        clone = self.clone_at("a clone")
        tries = [
            self.binaries(clone),
            self.binaries(CARGO_HOME=str(spaced)),
            self.binaries(CARGO_TARGET_DIR=str(spaced)),
            self.binaries(LIBTORCH=str(spaced)),
        ]
        for done in tries:
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("has a space in its name", done.stderr)
        self.assertFalse(list(self.home.rglob("release/canonc")))

    def test_a_time_that_git_does_not_know_ends_the_script(self) -> None:
        del self.variables["SOURCE_DATE_EPOCH"]
        done = self.binaries(GIT_CEILING_DIRECTORIES=str(self.home))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertIn("not a git repository", done.stderr)

    def test_make_stops_when_the_build_fails(self) -> None:
        (self.clone / "python").mkdir()
        for target, script in (("wheel", "python/wheel.sh"), ("release", "tools/packaging/archive.sh")):
            packer = self.clone / script
            packer.write_text('#!/bin/sh\necho "packed $1"\n')
            packer.chmod(0o755)
            words = ["make", "--silent", "-C", str(self.clone), "-o", "libtorch", target]
            failed = self.run_it(*words, SAYS=f"{self.clone}/x.rs")
            self.assertNotEqual(failed.returncode, 0)
            self.assertNotIn("packed", failed.stdout)
            self.assertIn(f"packed {self.clone}/target/packaging/release", self.run_it(*words).stdout)
            self.assertIn("packed programs", self.run_it(*words, "BINARIES=programs").stdout)

    def test_two_builds_are_compared(self) -> None:
        for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "start"]):
            who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
            done = self.run_it("git", "-C", self.clone, *who, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
        script = self.clone / "tools/packaging/reproduce.sh"
        equal = self.run_it(script, NAMES="CLONE")
        self.assertEqual(equal.returncode, 0, equal.stderr)
        self.assertRegex(equal.stdout, r"^[0-9a-f]{64}  canonc\nequal: two builds of [0-9a-f]{40}\n$")
        different = self.run_it(script, FOLDER_IN_PROGRAM="yes")
        self.assertEqual(different.returncode, 1)
        self.assertIn("give different canonc", different.stderr)
        self.assertNotIn("equal", different.stdout)


if __name__ == "__main__":
    unittest.main()
