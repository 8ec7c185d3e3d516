"""Architectures: `canonc check` and `canonc show`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ._command import Pathlike, path_argument, run_json, words_of


@dataclass(frozen=True)
class Place:
    """A place in a source. Lines and columns count from 1, columns in characters; the end is the place after it."""

    file: Path
    line: int
    column: int
    end_line: int
    end_column: int
    #: A note about the place; may be empty.
    note: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """An error or a warning. `str(problem)` has its place, message and help."""

    severity: Literal["error", "warning"]
    #: A stable word such as "unknown-slot"; None if a file could not be read.
    code: str | None
    message: str
    #: The place of the error first; none if a file could not be read.
    places: list[Place]
    #: What to do about it.
    help: list[str]

    def __str__(self) -> str:
        place = f"{self.places[0]}: " if self.places else ""
        return "\n".join([f"{place}{self.severity}: {self.message}", *(f"  = help: {text}" for text in self.help)])


@dataclass(frozen=True, repr=False)
class Checked:
    """What `check` found. `bool(checked)` says that there is no error; warnings are possible."""

    #: How many files were read, and how many architectures in them are right.
    files: int
    archs: int
    problems: list[Problem]

    def __bool__(self) -> bool:
        return not any(problem.severity == "error" for problem in self.problems)

    def __repr__(self) -> str:
        counts = f"files: {self.files}, archs: {self.archs}, problems: {len(self.problems)}"
        return "\n".join([*map(str, self.problems), counts])


def check(*paths: Pathlike) -> Checked:
    """Every error and warning of `.canon` files, folders, locks and runs; of the folder `arch` if none is named."""
    answer, _, _ = run_json(["check", *map(path_argument, paths)], "canonc.check.v1", (0, 2))
    return Checked(answer["files"], answer["archs"], [_problem(one) for one in answer["diagnostics"]])


def _problem(one: dict[str, Any]) -> Problem:
    places = [
        Place(
            Path(label["file"]),
            label["start"]["line"],
            label["start"]["column"],
            label["end"]["line"],
            label["end"]["column"],
            label["text"],
        )
        for label in one["labels"]
    ]
    return Problem(one["severity"], one["code"], one["message"], places, one["help"])


@dataclass(frozen=True)
class Parameter:
    """Of a layer, the path below `layers.N.`, and the numbers of one layer."""

    path: str
    shape: list[int]
    #: How its initial values are drawn, as text.
    init: str
    count: int


@dataclass(frozen=True)
class Part:
    """Equal layers, or what is outside of the layers."""

    #: The layers' numbers; None outside of the layers.
    layers: list[int] | None
    definition: str | None
    #: The mixer and the MLP of the layers.
    parts: list[str]
    parameters: list[Parameter]


@dataclass(frozen=True)
class Arch:
    """An architecture, and what it costs for sequences of `seq_len` tokens."""

    name: str
    docs: str
    vocab: int
    dim: int
    layers: int
    #: Digests, which with the arch's id say what it computes.
    graph: str
    manifest: str
    #: All parameters, those that one token uses, and those without the embedding.
    parameters: int
    active: int
    non_embedding: int
    seq_len: int
    #: A multiply-add is two.
    training_flops_per_token: int
    #: Memory in f32 of one sequence, and of parameters, gradients and AdamW's moments.
    activation_bytes: int
    optimizer_bytes: int
    tables: list[Part] = field(repr=False)
    #: The whole object of `canonc show --json`; `canonc show --help` has its members.
    json: dict[str, Any] = field(repr=False)


def show(path: Pathlike, *, arch: str | None = None, seq_len: int = 4096) -> list[Arch]:
    """The architectures of a `.canon` file, a lock or a run, and what they cost."""
    words = ["show", path_argument(path), *words_of([], arch=arch, seq_len=seq_len)]
    answer, _, _ = run_json(words, "canonc.show.v1")
    return [_arch(one, answer["seq_len"]) for one in answer["archs"]]


def _arch(one: dict[str, Any], seq_len: int) -> Arch:
    def parameters(part: dict[str, Any]) -> list[Parameter]:
        return [Parameter(row["path"], row["shape"], row["init"], row["count"]) for row in part["parameters"]]

    counts = one["parameters"]
    return Arch(
        name=one["name"],
        docs="\n".join(one["docs"]),
        vocab=one["vocab"],
        dim=one["dim"],
        layers=one["layers"],
        graph=one["graph"],
        manifest=one["manifest"],
        parameters=counts["total"],
        active=counts["active"],
        non_embedding=counts["non_embedding"],
        seq_len=seq_len,
        training_flops_per_token=one["flops_per_token"]["training"],
        activation_bytes=one["bytes_per_sequence"]["activations"],
        optimizer_bytes=one["optimizer_bytes"],
        tables=[Part(part["layers"], part["definition"], part["parts"], parameters(part)) for part in one["tables"]],
        json=one,
    )
