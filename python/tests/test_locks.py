"""The module `canonc` on answers of `canonc build` from other versions of the program, and its arguments."""

from __future__ import annotations

import json
import os
import unittest
from pathlib import Path
from unittest import mock

import canonc
from canonc import _command


class Build(unittest.TestCase):
    """Answers of `canonc build --check --json`."""

    def built(self, code: int, locks: list[dict[str, object]], said: str = "", **more: object) -> list[canonc.Built]:
        answer = json.dumps({"schema": "canonc.build.v1", "locks": locks, **more})
        with mock.patch.object(_command, "run", return_value=(code, answer, said)) as run:
            try:
                return canonc.build(check=True)
            finally:
                self.assertEqual(run.call_args.args[0], ["build", "--out", "lockfiles", "--check", "--json"])

    def lock(self, state: str, kind: str | None = "experiment") -> dict[str, object]:
        return {"path": "lockfiles/a.lock", "kind": kind, "id": kind and "0a", "state": state}

    def test_locks_without_a_source(self) -> None:
        orphan, unreadable = self.built(1, [self.lock("orphan"), self.lock("unreadable", None)], failed=[])
        self.assertEqual((orphan.state, orphan.kind, orphan.id), ("orphan", "experiment", "0a"))
        self.assertEqual((unreadable.state, unreadable.kind, unreadable.id), ("unreadable", None, None))
        damaged: dict[str, object] = {"path": "lockfiles/a.lock", "state": "damaged"}
        self.assertEqual(self.built(1, [damaged]), [canonc.Built(Path("lockfiles/a.lock"), None, None, "damaged")])

    def test_a_finding_that_the_list_does_not_have_is_an_error(self) -> None:
        failed = [{"source": "recipes/both.toml", "state": "confounded"}]
        for locks, more in (([self.lock("up to date")], {}), ([self.lock("stale")], {"failed": failed}), ([], {})):
            with self.assertRaisesRegex(canonc.Error, "^both differ$") as raised:
                self.built(1, locks, "both differ\n", **more)
            self.assertEqual(raised.exception.exit_code, 1)
        self.assertEqual(self.built(0, [self.lock("up to date")])[0].state, "up to date")


class Arguments(unittest.TestCase):
    def test_a_path_is_not_read_as_an_option(self) -> None:
        self.assertEqual(_command.path_argument("--help"), os.path.join(".", "--help"))
        self.assertEqual(_command.path_argument(Path("a/b")), os.path.join("a", "b"))


if __name__ == "__main__":
    unittest.main()
