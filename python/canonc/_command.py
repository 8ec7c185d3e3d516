"""One run of the program `canonc`, and what it says when it fails."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from . import _launch


class Error(Exception):
    """A command failed, or a file cannot be read. `message` is what the command printed; `exit_code` is its exit code: 1
    for a finding, 2 for bad input, 3 if this machine cannot, 75 if it was interrupted with a checkpoint."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type[Error], tuple[str, int]]:
        return Error, (self.message, self.exit_code)


def path_argument(path: str | os.PathLike[str]) -> str:
    """A path as an argument that the program does not read as an option."""
    text = os.fspath(path)
    return os.path.join(".", text) if text.startswith("-") else text


def run(arguments: list[str], accepted: tuple[int, ...] = (0,)) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; an `Error` for other exit codes than the accepted ones."""
    try:
        done = subprocess.run(
            ["canonc", "--color", "never", *arguments],
            executable=_launch.PROGRAM,
            env=_launch.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise Error(f"`{_launch.PROGRAM}` cannot be started: {error.strerror}", 3) from error
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    if code not in accepted:
        said = done.stderr.strip() or done.stdout.strip() or f"canonc exited with {code}"
        raise Error(said, code)
    return code, done.stdout, done.stderr


def run_json(arguments: list[str], schema: str, accepted: tuple[int, ...] = (0,)) -> tuple[dict[str, Any], int, str]:
    """The object that a command with --json prints, the exit code, and standard error."""
    code, out, said = run([*arguments, "--json"], accepted)
    try:
        value = json.loads(out)
    except ValueError:
        # A finding that ended the command before there was a report.
        raise Error(said.strip() or f"canonc exited with {code}", code) from None
    if not isinstance(value, dict) or value.get("schema") != schema:
        found = value.get("schema") if isinstance(value, dict) else None
        raise Error(f"canonc answered with the schema {found!r}, and this module reads {schema!r}", 3)
    return value, code, said.strip()
