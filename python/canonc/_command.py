"""One run of the program `canonc`, and what it says when it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from . import _launch

Pathlike = str | os.PathLike[str]

#: Where the lines go that a command prints while it works: True for standard error (in a notebook, below the cell), False
#: for nowhere, or a function that takes each.
Progress = bool | Callable[[str], object]


class Error(Exception):
    """A command failed, or a file cannot be read. `message` is what the command printed; `exit_code` is its exit code: 1
    for a finding, 2 for bad input, 3 if this machine cannot, 75 if it was interrupted with a checkpoint."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type[Error], tuple[str, int]]:
        return Error, (self.message, self.exit_code)


def path_argument(path: Pathlike) -> str:
    """A path as an argument that the program does not read as an option."""
    text = os.fspath(path)
    return os.path.join(".", text) if text.startswith("-") else text


def words_of(options: Iterable[str], **values: object) -> list[str]:
    """Options by their names, `_` for `-`, then further ones as they are; False and None leave one out."""
    words = []
    for name, value in values.items():
        option = "--" + name.strip("_").replace("_", "-")
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return [*words, *options]


def command(*words: Pathlike, progress: Progress = True) -> str:
    """Runs any command of canonc, such as `command("new", "demo")`, and returns what it prints on standard output."""
    return follow([os.fspath(word) for word in words], progress)[1]


def run(arguments: list[str], accepted: tuple[int, ...] = (0,)) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; an `Error` for other exit codes than the accepted ones."""
    with _starting():
        done = subprocess.run(_words(arguments), capture_output=True, **_settings())
    code = _code(done.returncode)
    if code not in accepted:
        raise Error(done.stderr.strip() or done.stdout.strip() or f"canonc exited with {code}", code)
    return code, done.stdout, done.stderr


def follow(arguments: list[str], progress: Progress, accepted: tuple[int, ...] = (0,)) -> tuple[int, str]:
    """Exit code and standard output of a command that takes a while. Each line of its standard error goes to `progress`.

    Ctrl-C, and an exception of `progress`, stop the command as Ctrl-C does at a terminal: with a checkpoint. A second
    Ctrl-C ends it at once. The `Error` of an interrupted command has the exit code 75.
    """
    lines = _Lines(progress)
    stopped: BaseException | None = None
    # A file, since nobody would read a pipe meanwhile.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
        with _starting():
            child = subprocess.Popen(_words(arguments), stdout=out, stderr=subprocess.PIPE, **_settings())
        with child:
            assert child.stderr is not None
            while True:
                try:
                    for line in child.stderr:
                        lines.add(line.rstrip("\n"))
                    break
                except BaseException as error:
                    if stopped is not None:
                        child.kill()
                        child.stderr.close()
                        raise
                    stopped = error
                    lines.progress = False
                    # Not SIGINT: a terminal has sent that to all processes, and the second one ends them at once.
                    child.send_signal(signal.SIGUSR1)
        code = _code(child.returncode)
        out.seek(0)
        text = out.read()
    if stopped is not None and (code == 0 or not isinstance(stopped, KeyboardInterrupt)):
        raise stopped
    if stopped is not None and code not in (1, 2, 3, 75):
        raise Error("interrupted before it began", 75) from stopped
    if stopped is not None or code not in accepted:
        # A finding is what a command prints as its result.
        message = lines.message() or (text.strip() if code == 1 else "")
        raise Error(message or f"canonc exited with {code}", code) from stopped
    lines.tell_error()
    return code, text


def _words(arguments: list[str]) -> list[str]:
    return ["canonc", "--color", "never", *arguments]


def _settings() -> dict[str, Any]:
    text = {"text": True, "encoding": "utf-8", "errors": "replace"}
    return {"executable": _launch.PROGRAM, "env": _launch.environment(), "stdin": subprocess.DEVNULL, **text}


@contextmanager
def _starting() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Error(f"`{_launch.PROGRAM}` cannot be started: {error.strerror}", 3) from error


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


class _Lines:
    """The lines of a command's standard error. An error that ends the command is the message of its `Error` alone."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._error: list[str] = []
        self._last = ""

    def add(self, line: str) -> None:
        if line.startswith(("error:", "error[")) or (self._error and line[:1] in ("", " ")):
            self._error.append(line)
            return
        self.tell_error()
        self._last = line
        self._tell(line)

    def tell_error(self) -> None:
        """The command went on after it, or succeeded: a run of a comparison diverged."""
        for line in self._error:
            self._tell(line)
        self._error = []

    def message(self) -> str:
        """The error; or what the command said at last, when it was interrupted."""
        return "\n".join(self._error).strip() or self._last

    def _tell(self, line: str) -> None:
        if callable(self.progress):
            self.progress(line)
        elif self.progress:
            print(line, file=sys.stderr, flush=True)


def run_json(arguments: list[str], schema: str, accepted: tuple[int, ...] = (0,)) -> tuple[dict[str, Any], int, str]:
    """The object that a command with --json prints, the exit code, and standard error."""
    code, out, said = run([*arguments, "--json"], accepted)
    return read_json(out, schema, said, code), code, said.strip()


def read_json(out: str, schema: str, said: str, code: int) -> dict[str, Any]:
    """The object that a command printed."""
    try:
        value = json.loads(out)
    except ValueError:
        # A finding that ended the command before there was a report.
        raise Error(said.strip() or f"canonc exited with {code}", code) from None
    if not isinstance(value, dict) or value.get("schema") != schema:
        found = value.get("schema") if isinstance(value, dict) else None
        raise Error(f"canonc answered with the schema {found!r}, and this module reads {schema!r}", 3)
    return value
