"""Locks: `canonc build` and `canonc diff`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ._command import Error, Pathlike, path_argument, run_json


@dataclass(frozen=True)
class Built:
    """A lock, and what `build` did with it or found."""

    path: Path
    #: "arch", "experiment" or "comparison"; None if the lock cannot be read.
    kind: str | None
    #: The digest that identifies it; None if the lock cannot be read.
    id: str | None
    #: "wrote" or "up to date"; with `check` also "stale" or "missing". "orphan": its source no longer makes it.
    #: "unreadable": damaged, or not a lock.
    state: str


def build(*paths: Pathlike, out: Pathlike = "lockfiles", check: bool = False) -> list[Built]:
    """Compiles archs (`.canon`), recipes and comparisons (`.toml`) into locks under `out`.

    Names of files in a lock are relative to the working folder, as for the command. With `check`, nothing is written;
    without a path, it checks the source of every lock under `out`. A comparison with confounded arms is an `Error`.
    Nothing is timed: only the command says how long runs will take.
    """
    options = ["--out", path_argument(out)] + (["--check"] if check else ["--quiet"])
    files = [path_argument(file) for file in paths]
    answer, code, said = run_json(["build", *options, *files], "canonc.build.v1", (0, 1) if check else (0,))
    built = [Built(Path(lock["path"]), lock.get("kind"), lock.get("id"), lock["state"]) for lock in answer["locks"]]
    # With --check, exit code 1 is about a lock, and the list says which; or about a file that makes none.
    explained = any(lock.state not in ("wrote", "up to date") for lock in built)
    if answer.get("failed") or (code and not explained):
        raise Error(said or f"canonc exited with {code}", code)
    return built


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
    """The differences between two locks, and whether they are the treatment alone. Confounds do not raise an `Error`."""
    entries = [treatment] if isinstance(treatment, str) else list(treatment)
    options = [f"--treatment={entry}" for entry in entries] + ([f"--trainer={trainer}"] if trainer else [])
    files = [path_argument(a), path_argument(b)]
    answer, _, _ = run_json(["diff", *files, *options], "canonc.diff.v1", (0, 1))

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
