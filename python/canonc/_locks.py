"""Locks: `canonc build` and `canonc diff`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ._command import run_json, words

Pathlike = str | os.PathLike[str]


@dataclass(frozen=True)
class Built:
    """A lock that `build` wrote or found up to date."""

    path: Path
    #: "arch", "experiment" or "comparison".
    kind: str
    #: The digest that identifies it.
    id: str
    #: "wrote" or "up to date"; with `check`, "up to date", "stale" or "missing".
    state: str


def build(path: Pathlike, *more: Pathlike, out: Pathlike = "lockfiles", check: bool = False) -> list[Built]:
    """Compiles archs (`.canon`), recipes and comparisons (`.toml`) into locks under `out`.

    Names of files in a lock are relative to the working folder, as for the command. With `check`, nothing is written.
    """
    options = ["--out", words(out)] + (["--check"] if check else [])
    files = [words(file) for file in (path, *more)]
    # With --check, exit code 1 says that a lock is stale, and the answer says which.
    answer = run_json(["build", *options, *files], "canonc.build.v1", (0, 1) if check else (0,))
    return [Built(Path(lock["path"]), lock["kind"], lock["id"], lock["state"]) for lock in answer["locks"]]


@dataclass(frozen=True)
class Difference:
    """A field that differs, with both values; None if a lock has no such field."""

    path: str
    a: Any
    b: Any
    #: file:line in each lock.
    at_a: str | None
    at_b: str | None
    note: str


@dataclass(frozen=True)
class Verdict:
    """How two locks differ. `bool(verdict)` is `verdict.controlled`."""

    verdict: Literal["identical", "controlled", "bundle", "confounded"]
    #: Whether only the treatment differs.
    controlled: bool
    headline: str
    treatment: list[dict[str, Any]]
    confounds: list[Difference]
    consequences: list[Difference]
    platform: list[Difference]
    cosmetic: list[Difference]
    #: The whole object of `canonc diff --json`; `canonc diff --help` has its members.
    json: dict[str, Any] = field(repr=False)

    def __bool__(self) -> bool:
        return self.controlled


def diff(a: Pathlike, b: Pathlike, *, treatment: str | Iterable[str] = (), trainer: str | None = None) -> Verdict:
    """The differences between two locks, and whether they are the treatment alone. A confound is an answer, no error."""
    entries = [treatment] if isinstance(treatment, str) else list(treatment)
    options = [f"--treatment={entry}" for entry in entries] + ([f"--trainer={trainer}"] if trainer else [])
    answer = run_json(["diff", words(a), words(b), *options], "canonc.diff.v1", (0, 1))

    def differences(name: str) -> list[Difference]:
        return [
            Difference(one["path"], one["a"], one["b"], one["at_a"], one["at_b"], one["note"]) for one in answer[name]
        ]

    return Verdict(
        verdict=answer["verdict"],
        controlled=answer["controlled"],
        headline=answer["headline"],
        treatment=answer["treatment"],
        confounds=differences("confounds"),
        consequences=differences("consequences"),
        platform=differences("platform"),
        cosmetic=differences("cosmetic"),
        json=answer,
    )
