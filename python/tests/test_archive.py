"""Release archives: the same programs give the same bytes in another folder, at another time, for another user."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BARE = Path(os.environ["CANONC_BARE"])


class Archive(unittest.TestCase):
    def test_two_archives_are_equal_and_complete(self) -> None:
        binaries = next(BARE.glob("lib/python3*/site-packages/canonc/bin"))
        with tempfile.TemporaryDirectory() as folder:
            # Another clone, with other times and modes, and a file that git does not know.
            other = Path(folder) / "other"
            listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
            root = os.fsencode(ROOT)
            tracked = b"\0".join(name for name in listed.split(b"\0") if os.path.lexists(os.path.join(root, name)))
            subprocess.run(["git", "init", "--quiet", other], check=True)
            copy = ["xargs", "--null", "cp", "--parents", "--no-dereference", "--target-directory", str(other)]
            subprocess.run(copy, input=tracked, cwd=ROOT, check=True)
            subprocess.run(["git", "add", "--all"], cwd=other, check=True)
            (other / "docs" / "notes.md").write_text("mine\n")
            made = []
            for clone, umask in ((ROOT, 0o022), (other, 0o077)):
                out = Path(folder) / f"out{umask}"
                subprocess.run(
                    [clone / "tools/packaging/archive.sh", binaries, out],
                    env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
                    umask=umask,
                    stdout=subprocess.DEVNULL,
                    check=True,
                )
                made.append(next(out.glob("canonc-*-linux.tar.gz")))
            digests = {hashlib.sha256(file.read_bytes()).hexdigest() for file in made}
            self.assertEqual(len(digests), 1)
            self.assertIn(digests.pop(), made[0].with_name(made[0].name + ".sha256").read_text())
            with tarfile.open(made[0]) as archive:
                members = {member.name.split("/", 1)[-1]: member for member in archive}
        for name in ("LICENSE", "NOTICE", "THIRD-PARTY.txt", "docs/install.md", "share/man/man1/canonc-run.1"):
            self.assertIn(name, members)
        self.assertNotIn("docs/notes.md", members)
        for name in ("bin/canonc", "bin/canonc-torch"):
            self.assertEqual(members[name].mode, 0o755)
        self.assertEqual({(member.uid, member.gid, member.mtime) for member in members.values()}, {(0, 0, 1700000000)})


if __name__ == "__main__":
    unittest.main()
