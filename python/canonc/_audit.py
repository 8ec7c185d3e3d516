"""Faults of a set of experiments: `canonc audit`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ._command import Pathlike, path_argument, run_json, words_of


@dataclass(frozen=True)
class Finding:
    rule: str
    severity: Literal["error", "confound", "warning", "note"]
    #: The field that it is about; None for a whole experiment.
    key: str | None
    message: str
    why: str
    help: str
    #: For each experiment its name, the other one of a pair or None, and what they say.
    places: list[tuple[str, str | None, str]]

    def __str__(self) -> str:
        places = (f"    {name}{f' against {other}' if other else ''}: {says}" for name, other, says in self.places)
        return "\n".join([f"{self.severity}[{self.rule}]: {self.message}", *places, f"  = help: {self.help}"])


@dataclass(frozen=True, repr=False)
class Audit:
    """What `audit` found. `bool(audit)` says that there is neither a confound nor an error."""

    experiments: int
    #: The most severe first.
    findings: list[Finding]
    #: The names of two experiments that differ in a treatment, and whether nothing else can affect results.
    pairs: list[tuple[str, str, bool]]
    #: The whole object of `canonc audit --json`; `canonc audit --help` has its members.
    json: dict[str, Any] = field(repr=False)

    def __bool__(self) -> bool:
        return not self.json["fails"]

    def __repr__(self) -> str:
        counts = f"experiments: {self.experiments}, pairs: {len(self.pairs)}, findings: {len(self.findings)}"
        return "\n".join([*map(str, self.findings), counts])


def audit(
    *paths: Pathlike,
    published: bool = False,
    curves: Pathlike | None = None,
    rules: Pathlike | None = None,
    log: Pathlike | None = None,
    as_: str | None = None,
    options: Iterable[str] = (),
) -> Audit:
    """Faults of locks, tables and configurations that no diff of two shows; with `log`, of another trainer's log of a lock.

    `as_` is `--as`; `options` are further ones.
    """
    words = words_of(options, published=published, curves=curves, rules=rules, log=log, as_=as_)
    answer, _, _ = run_json(["audit", *map(path_argument, paths), *words], "canonc.audit.v1", (0, 1))
    findings = [
        Finding(
            rule=one["rule"],
            severity=one["severity"],
            key=one["key"],
            message=one["message"],
            why=one["why"],
            help=one["help"],
            places=[(place["experiment"], place["against"], place["says"]) for place in one["places"]],
        )
        for one in answer["findings"]
    ]
    pairs = [(pair["without"], pair["with"], pair["clean"]) for pair in answer["pairs"]]
    return Audit(answer["experiments"], findings, pairs, answer)
