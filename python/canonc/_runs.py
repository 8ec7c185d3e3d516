"""A run: the folder that `canonc run` wrote, as configuration, weights, metrics and verification.

docs/files.md describes the files. Nothing here changes them. A file that is missing or damaged raises an `Error` with
its name; so does a missing package, with the command that installs it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from ._command import Error, path_argument, run_json

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch

#: Members of a step or evaluation that are not numbers.
_NOT_NUMBERS = ("kind", "chain", "batch", "questions")


@dataclass(frozen=True)
class Verification:
    """What `canonc verify` found. `bool(verification)` is `verification.holds`."""

    #: Whether every claim was checked and holds: nothing is broken, and nothing undecided.
    holds: bool
    #: The faults, a sentence each.
    broken: list[str]
    #: What cannot be decided on this machine.
    undecided: list[str]
    closing: str
    #: The whole object of `canonc verify --json`.
    json: dict[str, Any] = field(repr=False)

    def __bool__(self) -> bool:
        return self.holds


def needed(name: str, *packages: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        what = " ".join(packages)
        message = f"this needs {' and '.join(packages)}, and {name} cannot be imported: {error}"
        raise Error(f"{message}\n  = help: `{sys.executable} -m pip install {what}`", 3) from error


def _number(value: Any) -> Any:
    """NaN and infinities are strings in the log."""
    return float(value) if value in ("NaN", "inf", "-inf") else value


class Run:
    """A run's folder. Every part is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        #: The lock, as TOML gives it.
        self.lock: dict[str, Any] = _toml(folder / "lock")
        kind, version = self.lock.get("kind"), self.lock.get("version")
        if not isinstance(version, int) or kind != "experiment":
            fault = f"its kind is {kind!r}" if isinstance(version, int) and kind else "it has no version and kind"
            raise Error(f"`{folder / 'lock'}` is not the lock of an experiment: {fault}", 2)

    def __repr__(self) -> str:
        return f"canonc.load({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The lock's name."""
        return str(self.lock["name"])

    @property
    def config(self) -> dict[str, Any]:
        """Every field of the recipe, by the names of `canonc show --recipe-fields`: {"optimizer": {"lr": 0.003}}."""
        merged: dict[str, Any] = {}
        for section in ("train", "eval", "platform", "cosmetic"):
            _merge(merged, self.lock.get(section, {}))
        # Of an evaluation's section: the digest of the training that it belongs to.
        merged.pop("train", None)
        return merged

    @property
    def arch(self) -> str:
        """The architecture as text, without imports."""
        return str(self.lock["arch"]["text"])

    @property
    def attestation(self) -> dict[str, Any] | None:
        """What the run attests, or None before its end."""
        file = self.path / "attestation.toml"
        return _toml(file) if file.exists() else None

    @property
    def steps(self) -> list[int]:
        """The steps whose checkpoints are kept, ascending."""
        files = (self.path / "checkpoints").glob("step-*/checkpoint.toml")
        names = (re.fullmatch(r"step-(\d{10,})", file.parent.name) for file in files)
        return sorted(int(name[1]) for name in names if name)

    @overload
    def weights(self, step: int | None = None, framework: Literal["numpy"] = "numpy") -> dict[str, np.ndarray[Any, Any]]: ...
    @overload
    def weights(self, step: int | None = None, *, framework: Literal["torch"]) -> dict[str, torch.Tensor]: ...
    @overload
    def weights(self, step: int | None, framework: Literal["torch"]) -> dict[str, torch.Tensor]: ...
    def weights(self, step: int | None = None, framework: str = "numpy") -> dict[str, Any]:
        """The weights of a checkpoint, the last one if no step is given, under the paths of `canonc show`."""
        if framework not in ("numpy", "torch"):
            raise Error(f"the framework is 'numpy' or 'torch', and not {framework!r}", 2)
        steps = self.steps
        if not steps:
            raise Error(f"`{self.path}` has no checkpoint yet", 2)
        if step is None:
            step = steps[-1]
        if step not in steps:
            kept = ", ".join(map(str, steps))
            raise Error(f"`{self.path}` has no checkpoint of step {step}; it has: {kept}", 2)
        file = self.path / "checkpoints" / f"step-{step:010}" / "weights.safetensors"
        reader = needed(f"safetensors.{framework}", framework, "safetensors")
        safetensors = needed("safetensors", framework, "safetensors")
        try:
            tensors: dict[str, Any] = reader.load_file(file)
        except (OSError, safetensors.SafetensorError) as error:
            raise Error(f"`{file}` cannot be read: {error}", 2) from error
        return tensors

    @property
    def trainer(self) -> dict[str, Any] | None:
        """What another engine says of itself and of how it trained the run; None if canonc trained it."""
        file = self.path / "trainer.toml"
        return _toml(file) if file.exists() else None

    def records(self) -> Iterator[dict[str, Any]]:
        """Every line of the log, as it is."""
        return self._records("metrics.jsonl")

    def _records(self, name: str) -> Iterator[dict[str, Any]]:
        file = self.path / name
        try:
            with open(file, "rb") as log:
                for number, line in enumerate(log, 1):
                    # A line without an end is still being written.
                    if line.endswith(b"\n"):
                        yield _record(line, f"line {number} of `{file}`")
        except OSError as error:
            raise Error(f"`{file}` cannot be read: {error.strerror}", 2) from error

    def metrics(self) -> pd.DataFrame:
        """A row for each training step: loss, grad_norm, lr, counted and auxiliary losses, by step."""
        return self._frame("step", "metrics.jsonl")

    def evaluations(self) -> pd.DataFrame:
        """A row for each evaluation, by step. Accuracies are shares: `exact_match.2` of the level 2. A metric of a suite
        has the name of its task: `lambada/acc`. Those of a run that another engine trained are by `canonc record`."""
        name = "metrics.jsonl" if self.trainer is None else "evaluations.jsonl"
        if name == "evaluations.jsonl" and not (self.path / name).exists():
            raise Error(f"`{self.path}` has no evaluations yet: `canonc record {self.path}` evaluates what another engine trained", 2)
        return self._frame("eval", name)

    def _frame(self, kind: str, name: str) -> pd.DataFrame:
        pandas = needed("pandas", "pandas")
        rows = []
        for number, record in enumerate(self._records(name), 1):
            if record["kind"] == kind:
                try:
                    rows.append(_row(record))
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    file = self.path / name
                    raise Error(f"line {number} of `{file}` is not a record of canonc: {error!r}", 2) from error
        frame: pd.DataFrame = pandas.DataFrame(rows, columns=None if rows else ["step"])
        return frame.set_index("step")

    def verify(self, *, replay: int | Literal["all"] | None = None, data: str | os.PathLike[str] | None = None) -> Verification:
        """Checks every claim of the run; with `replay`, also trains so many of its steps again, which needs PyTorch."""
        options = [] if replay is None else [f"--replay={replay}"]
        options += [] if data is None else [f"--data={os.fspath(data)}"]
        answer, _, _ = run_json(["verify", path_argument(self.path), *options], "canonc.verify.v2", (0, 1, 3))
        broken, undecided = list(answer["broken"]), list(answer["undecided"])
        return Verification(not broken and not undecided, broken, undecided, answer["closing"], answer)


def load(run: str | os.PathLike[str]) -> Run:
    """A run by its folder, or by its name under `runs/`."""
    named = Path(run)
    for folder in (named, Path("runs") / named):
        if (folder / "lock").is_file():
            return Run(folder)
    raise Error(
        f"`{named}` is not a run: it has no file `lock`\n"
        "  = help: name a folder that `canonc run` wrote, such as runs/NAME, or its name",
        2,
    )


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Error(f"`{file}` cannot be read: {error.strerror}", 2) from error
    except ValueError as error:
        raise Error(f"`{file}` is damaged, or not a file of canonc: {error}", 2) from error


def _record(line: bytes, label: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise Error(f"{label} is damaged: {error}", 2) from error
    if not isinstance(record, dict) or "kind" not in record:
        raise Error(f"{label} is not a record of canonc", 2)
    return record


def _merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a line of the log, flat."""
    row: dict[str, Any] = {}
    for name, value in record.items():
        if name in _NOT_NUMBERS:
            continue
        if name == "measures":
            row.update({measure: _number(number) for measure, number in value.items()})
        elif name == "suites":
            for suite in value:
                # The task is its name, then digests of what was asked.
                task = suite["task"].split(maxsplit=1)[0]
                row.update({f"{task}/{metric}": _number(number) for metric, number in suite["scores"].items()})
        elif not isinstance(value, dict):
            row[name] = _number(value)
        elif "of" in value:
            row[name] = _share(value)
        else:
            row.update({f"{name}.{level}": _share(count) for level, count in value.items()})
    return row


def _share(count: dict[str, int]) -> float | None:
    return count["right"] / count["of"] if count["of"] else None
