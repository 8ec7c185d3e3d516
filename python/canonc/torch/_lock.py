"""What a lock says, from the folder that `canonc export --to trainer` writes of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import tomllib
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .._command import Error as _Failure
else:
    try:
        from .._command import Error as _Failure
    except ImportError:  # An exported copy of this package stands alone.

        class _Failure(Exception):
            def __init__(self, message, exit_code):
                super().__init__(message)
                self.message, self.exit_code = message, exit_code


class Error(_Failure):
    """The lock, a folder or this machine cannot do what was asked; the message says what to type next."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message, exit_code)


@dataclass(frozen=True)
class Parameter:
    """A parameter of the arch."""

    #: Its path in the lock, in checkpoints and in `canonc show`.
    path: str
    #: Its name in the module.
    name: str
    shape: list[int]
    #: Whether it keeps f32 where the lock computes in bf16.
    f32: bool
    #: The rule of its initial values, and the rule's numbers; "file" are the values in initial.safetensors.
    init: str
    numbers: list[float]
    #: "adamw", "muon" or "frozen".
    update: str
    #: The factor of the learning rate, and the weight decay relative to it.
    lr: float
    weight_decay: float
    #: Of Muon: momentum, nesterov, and scale, the factor of its update.
    muon: dict[str, Any] | None = None


class Lock:
    """The values of a lock. `Lock("lockfiles/x.lock")` asks the program `canonc`; `Lock(folder)` reads an exported folder.

    An architecture alone (`Lock("arch/x.canon")`) has parameters and a module, and no training. `data` are prepared documents
    of a lock on text, `weights` those that the run of a lock begins from, if they are not where the lock says.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        arch: str | None = None,
        data: str | os.PathLike[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
    ) -> None:
        path = Path(source)
        #: The folder that is read.
        self.folder = path
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if not (path / "params.toml").is_file():
            self._temporary = tempfile.TemporaryDirectory(prefix="canonc-")
            self.folder = Path(self._temporary.name) / "trainer"
            words = ["export", _word(path), "--to", "trainer", "--out", str(self.folder)]
            words += [] if arch is None else [f"--arch={arch}"]
            _run(words + ([] if weights is None else [f"--weights={weights}"]))
        if self._temporary is not None and not (self.folder / "params.toml").is_file():
            raise Error(f"`{path}` is the lock of a comparison: `canonc export {path} --to trainer --out DIR` makes a folder for each of its runs")
        values = _toml(self.folder / "params.toml")
        if values.get("version") != 1:
            raise Error(f"`{self.folder / 'params.toml'}` has version {values.get('version')}, and this reads version 1")
        #: Prepared documents, for a lock on text.
        self.data = None if data is None else Path(data)
        self.arch: dict[str, Any] = values["arch"]
        #: Digest of the graph, and of the generated module.
        self.graph: str = self.arch["graph"]
        self.params = [Parameter(**row) for row in values["param"]]
        self._training: dict[str, Any] | None = values.get("training")

    @property
    def training(self) -> dict[str, Any]:
        """The values of the recipe."""
        if self._training is None:
            raise Error(f"{self.arch['name']} is an architecture without a recipe: name the lock of an experiment to train it")
        return self._training

    @property
    def trains(self) -> bool:
        """Whether it is a lock, and not an architecture alone."""
        return self._training is not None

    @property
    def name(self) -> str:
        return str(self.training["name"])

    @property
    def id(self) -> str:
        """The lock's id."""
        return str(self.training["lock"])

    @property
    def steps(self) -> int:
        return int(self.training["steps"])

    @property
    def precision(self) -> str:
        """"f32" or "bf16"."""
        return str(self.training["precision"])

    @property
    def path(self) -> Path:
        """The lock itself."""
        return self.folder / "lock"

    @property
    def text(self) -> str:
        """The lock's text."""
        return self.path.read_text(encoding="utf-8")

    def initial_bytes(self, path: str, first: int, count: int) -> bytes:
        """Elements `first` to `first + count` of a parameter in initial.safetensors: f32, little-endian."""
        with open(self.folder / "initial.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            start, end = header[path]["data_offsets"]
            file.seek(start + 4 * first, os.SEEK_CUR)
            data = file.read(4 * count)
        if 4 * (first + count) > end - start or len(data) != 4 * count:
            raise Error(f"`{self.folder / 'initial.safetensors'}` has no element {first + count} of `{path}`: export the lock again")
        return data

    def rate(self, step: int) -> float:
        """The learning rate of a step, from 1."""
        rates = self._rates()
        if not 1 <= step <= len(rates):
            raise Error(f"step {step} is not one of the lock's {len(rates)}")
        return rates[step - 1]

    def factor(self, updates: int) -> float:
        """The learning rate after so many updates, relative to the base rate: for `LambdaLR`. After the last it is that of the last."""
        return self.rate(min(updates + 1, self.steps)) / float(self.training["optimizer"]["lr"])

    def _rates(self) -> array[float]:
        if not hasattr(self, "_rate_table"):
            rates = array("d")
            rates.frombytes((self.folder / "rates.f64").read_bytes())
            if array("H", [1]).tobytes() != b"\1\0":
                rates.byteswap()
            self._rate_table = rates
        return self._rate_table


def program() -> tuple[str, dict[str, str]]:
    """The program `canonc` and its environment: CANONC names another one."""
    environment = dict(os.environ)
    if named := os.environ.get("CANONC"):
        return named, environment
    try:
        # In the wheel; an exported copy of this package stands alone.
        from .._launch import PROGRAM, environment as of_wheel

        return PROGRAM, of_wheel()
    except ImportError:
        pass
    if on_path := shutil.which("canonc"):
        return on_path, environment
    raise Error("the program `canonc` is not on PATH: install it, or set CANONC to its path; it needs no PyTorch for this")


def _word(path: Path) -> str:
    text = str(path)
    return os.path.join(".", text) if text.startswith("-") else text


def _run(words: list[str]) -> None:
    name, environment = program()
    try:
        done = subprocess.run(
            [name, "--color", "never", *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise Error(f"`{name}` cannot be started: {error.strerror}") from error
    if done.returncode:
        raise Error(done.stderr.strip() or f"`{name}` exited with {done.returncode}", max(done.returncode, 1))


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Error(f"`{file}` cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Error(f"`{file}` is damaged: {error}; export the lock again") from error
