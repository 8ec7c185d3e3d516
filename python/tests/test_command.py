"""How the module follows a command: its lines, its error, and what stops it. A script stands in for the program."""

from __future__ import annotations

import signal
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import canonc
from canonc import _command, _launch

#: Trains until it is asked to stop, as `canonc run` does; a second SIGINT ends it at once.
TRAINS = """
trap 'echo "interrupted after step 3, with a checkpoint" >&2; exit 75' USR1
echo "step 3" >&2
while :; do sleep 0.05; done
"""


class Follow(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = Path(folder.name) / "canonc"
        patch = mock.patch.object(_launch, "PROGRAM", str(self.script))
        patch.start()
        self.addCleanup(patch.stop)

    def follow(self, script: str, progress: _command.Progress = False) -> tuple[int, str]:
        self.script.write_text(f"#!/bin/sh\n{script}\n")
        self.script.chmod(0o755)
        return _command.follow(["run"], progress)

    def test_lines_are_told_and_output_is_returned(self) -> None:
        lines: list[str] = []
        self.assertEqual(self.follow("echo one >&2; echo '{}'; echo two >&2", lines.append), (0, "{}\n"))
        self.assertEqual(lines, ["one", "two"])

    def test_the_error_is_the_message_alone(self) -> None:
        lines: list[str] = []
        with self.assertRaises(canonc.Error) as raised:
            self.follow("printf 'step 1\\nerror: no\\n  = help: yes\\n' >&2; exit 2", lines.append)
        self.assertEqual((raised.exception.message, raised.exception.exit_code), ("error: no\n  = help: yes", 2))
        self.assertEqual(lines, ["step 1"])

    def test_an_error_that_does_not_end_the_command_is_told(self) -> None:
        lines: list[str] = []
        self.follow("printf 'error: diverged\\n  = help: lower it\\nthe other runs continue\\n' >&2", lines.append)
        self.assertEqual(lines, ["error: diverged", "  = help: lower it", "the other runs continue"])

    def test_an_interrupt_stops_the_command_with_a_checkpoint(self) -> None:
        with self.assertRaisesRegex(canonc.Error, "^interrupted after step 3, with a checkpoint$") as raised:
            self.follow(TRAINS, lambda _: signal.raise_signal(signal.SIGINT))
        self.assertEqual(raised.exception.exit_code, 75)
        self.assertIsInstance(raised.exception.__cause__, KeyboardInterrupt)

    def test_an_interrupt_before_the_command_waits_for_signals(self) -> None:
        with self.assertRaisesRegex(canonc.Error, "^interrupted before it began$") as raised:
            self.follow("echo early >&2; exec sleep 60", lambda _: signal.raise_signal(signal.SIGINT))
        self.assertEqual(raised.exception.exit_code, 75)

    def test_an_exception_of_progress_stops_the_command_and_is_raised(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            self.follow(TRAINS, lambda _: 1 // 0)

    def test_an_interrupt_of_a_command_that_succeeds_is_not_lost(self) -> None:
        with self.assertRaises(KeyboardInterrupt):
            self.follow("trap '' USR1; echo last >&2; sleep 0.2; exit 0", lambda _: signal.raise_signal(signal.SIGINT))

    def test_a_program_that_cannot_be_started(self) -> None:
        with self.assertRaisesRegex(canonc.Error, "cannot be started: No such file") as raised:
            _command.follow(["run"], False)
        self.assertEqual(raised.exception.exit_code, 3)


class Words(unittest.TestCase):
    def test_options_have_the_names_of_the_command_line(self) -> None:
        words = _command.words_of(["--by-node"], stop_after_step=2, dry_run=True, data=Path("a/b"), out=None, as_="hf")
        self.assertEqual(words, ["--stop-after-step=2", "--dry-run", "--data=a/b", "--as=hf", "--by-node"])


if __name__ == "__main__":
    unittest.main()
