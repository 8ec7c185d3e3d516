"""Training and what follows from it: `canonc run`, `compare` and `export`.

These commands take a while, so their lines go to `progress` as they come, and Ctrl-C (in a notebook: interrupt) stops
them with a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ._command import Pathlike, Progress, follow, path_argument, read_json, run_json, words_of
from ._runs import Run, needed

if TYPE_CHECKING:
    import pandas as pd

Device = Literal["cpu", "cuda"]


def run(
    lock: Pathlike,
    *,
    dir: Pathlike | None = None,
    data: Pathlike | None = None,
    weights: Pathlike | None = None,
    device: Device | None = None,
    ranks: int | None = None,
    tensorboard: Pathlike | None = None,
    stop_after: str | None = None,
    stop_after_step: int | None = None,
    options: Iterable[str] = (),
    progress: Progress = True,
) -> Run:
    """Trains a lock, or continues its run, or finds it finished.

    Ctrl-C stops it after the current step with a checkpoint, and is an `Error` with the exit code 75; the same call
    continues. `stop_after` ("30m") and `stop_after_step` stop it, too, and the run so far is returned. A run that diverges is
    an `Error` with the exit code 1. `options` are further ones of `canonc run`.
    """
    words = words_of(
        options,
        dir=dir,
        data=data,
        weights=weights,
        device=device,
        ranks=ranks,
        tensorboard=tensorboard,
        stop_after=stop_after,
        stop_after_step=stop_after_step,
    )
    accepted = (0,) if stop_after is None and stop_after_step is None else (0, 75)
    code, out = follow(["run", path_argument(lock), *words, "--json"], progress, accepted)
    return Run(Path(read_json(out, "canonc.run.v1", "", code)["folder"]))


def record(
    run: Pathlike,
    *,
    data: Pathlike | None = None,
    weights: Pathlike | None = None,
    device: Device | None = None,
    options: Iterable[str] = (),
    progress: Progress = True,
) -> Run:
    """Evaluates and attests a run that another engine trained: `canonc record`. A fault in it is an `Error` with the exit code 1."""
    words = words_of(options, data=data, weights=weights, device=device)
    code, out = follow(["record", path_argument(run), *words, "--json"], progress)
    return Run(Path(read_json(out, "canonc.record.v1", "", code)["run"]))


@dataclass(frozen=True)
class Estimate:
    """What a run will take on this machine."""

    name: str
    #: The run's folder, and whether there is one.
    folder: Path
    state: Literal["new", "begun", "finished"]
    parameters: int
    steps: int
    tokens: int
    memory_bytes: int
    disk_bytes: int
    #: Of the whole run: training and evaluations.
    seconds: float
    #: The whole object of `canonc run --dry-run --json`; `canonc run --help` has its members.
    json: dict[str, Any] = field(repr=False)


def estimate(
    lock: Pathlike,
    *,
    data: Pathlike | None = None,
    weights: Pathlike | None = None,
    device: Device | None = None,
    ranks: int | None = None,
    options: Iterable[str] = (),
) -> Estimate:
    """Memory, disk and time of a run, without training it: `canonc run --dry-run`."""
    words = words_of(options, dry_run=True, data=data, weights=weights, device=device, ranks=ranks)
    answer, _, _ = run_json(["run", path_argument(lock), *words], "canonc.run.estimate.v1")
    return Estimate(
        name=answer["name"],
        folder=Path(answer["folder"]),
        state=answer["state"],
        parameters=answer["parameters"],
        steps=answer["steps"],
        tokens=answer["tokens"],
        memory_bytes=answer["memory_bytes"],
        disk_bytes=answer["disk_bytes"],
        seconds=answer["seconds"],
        json=answer,
    )


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    p: float | None


@dataclass(frozen=True)
class Row:
    """One metric of two arms, paired by seed."""

    metric: str
    #: The metric, and why it is not held-out.
    label: str
    #: "nats", "share", "count" or "seconds"; differences of seconds are ratios.
    unit: str
    #: Means of both arms, and the mean difference; None without a value.
    base: float | None
    treated: float | None
    difference: float | None
    #: Seeds.
    n: int
    #: None where there is none, and then why.
    interval: Interval | None
    no_interval: str | None
    better: Literal["less", "more"]
    #: "better", "worse", "equivalent" or "undecided" for the metrics that the comparison judges, else None.
    effect: str | None
    #: The row of `canonc compare --json`.
    json: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Pair:
    """A treated arm against the base."""

    arm: str
    base: str
    verdict: str
    design: str
    controlled: bool
    rows: list[Row]

    def row(self, metric: str) -> Row:
        """The row of a metric; a `KeyError` has their names."""
        for row in self.rows:
            if row.metric == metric:
                return row
        raise KeyError(f"{metric}; there are: {', '.join(row.metric for row in self.rows)}")


@dataclass(frozen=True)
class Arm:
    name: str
    role: Literal["base", "treated", "replicate"]
    #: How it differs from the base; None for the base and its replicate.
    verdict: str | None
    factors: int | None
    #: Finished runs, at each point of a grid.
    runs: list[int]
    #: The arm of `canonc compare --json`: costs, measured times and memory, tuning.
    json: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of a comparison, which `print` and a notebook show as a table."""

    name: str
    #: The id of its lock.
    lock: str
    #: How the arms differ: "controlled", "compensated", "bundle", "tuned" or "not_controlled".
    design: str
    controlled: bool
    #: Whether each arm differs from the base in one factor.
    attributable: bool
    verdict: str
    arms: list[Arm]
    pairs: list[Pair]
    caption: str
    #: A paragraph for a paper.
    methods: str
    warnings: list[str]
    notes: list[str]
    #: The folder with its runs, and the page with the curves.
    folder: Path
    page: Path
    #: The comparison of `canonc compare --json`; `canonc compare --help` has its members.
    json: dict[str, Any] = field(repr=False)

    def runs(self) -> list[Run]:
        """The runs in its folder. A run that another folder had before is not among them."""
        return [Run(folder.parent) for folder in sorted(self.folder.glob("*/lock"))]

    def table(self) -> pd.DataFrame:
        """A row for each pair and metric."""
        pandas = needed("pandas", "pandas")
        frame: pd.DataFrame = pandas.DataFrame(self._cells(), columns=_COLUMNS)
        return frame

    def _cells(self) -> list[list[Any]]:
        cells: list[list[Any]] = []
        for pair in self.pairs:
            for row in pair.rows:
                interval = [None, None] if row.interval is None else [row.interval.low, row.interval.high]
                ends = [row.base, row.treated, row.difference, *interval]
                cells.append([pair.arm, pair.base, row.metric, *ends, row.n, row.effect])
        return cells

    def __repr__(self) -> str:
        cells = [_COLUMNS, *([_text(cell) for cell in line] for line in self._cells())]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in cells]
        lines = ["  ".join(line).rstrip() for line in padded]
        return "\n".join([f"{self.name}: {self.verdict}", "", *lines, "", f"page: {self.page}"])

    def _repr_html_(self) -> str:
        def line(tag: str, cells: list[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        rows = [line("th", _COLUMNS), *(line("td", list(map(_text, cells))) for cells in self._cells())]
        warnings = "".join(f"<p><b>warning:</b> {escape(text)}</p>" for text in self.warnings)
        title = f"<p><b>{escape(self.name)}</b>: {escape(self.verdict)}</p>"
        return f"{title}{warnings}<table>{''.join(rows)}</table><p>{escape(self.caption)}</p>"


_COLUMNS = ["arm", "base", "metric", "mean of base", "mean of arm", "difference", "low", "high", "seeds", "effect"]


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def compare(
    lock: Pathlike,
    *,
    dir: Pathlike = "runs",
    data: Pathlike | None = None,
    weights: Pathlike | None = None,
    out: Pathlike | None = None,
    tensorboard: Pathlike | None = None,
    jobs: int = 1,
    options: Iterable[str] = (),
    progress: Progress = True,
) -> Comparison:
    """Trains the missing runs of a comparison, then compares its arms.

    Ctrl-C stops the current run with a checkpoint, and is an `Error` with the exit code 75; the same call continues.
    `options` are further ones of `canonc compare`.
    """
    words = words_of(options, dir=path_argument(dir), data=data, weights=weights, out=out, tensorboard=tensorboard, jobs=jobs)
    code, printed = follow(["compare", path_argument(lock), *words, "--json"], progress)
    answer = read_json(printed, "canonc.compare.v2", "", code)
    [one] = answer["comparisons"]
    folder = Path(dir) / one["name"]
    return Comparison(
        name=one["name"],
        lock=one["lock"],
        design=one["design"],
        controlled=one["controlled"],
        attributable=one["attributable"],
        verdict=one["verdict"],
        arms=[Arm(arm["name"], arm["role"], arm["verdict"], arm["factors"], arm["runs"], arm) for arm in one["arms"]],
        pairs=[_pair(pair) for pair in one["pairs"]],
        caption=one["caption"],
        methods=one["methods"],
        warnings=one["warnings"],
        notes=one["notes"],
        folder=folder,
        page=folder / "report.html",
        json=one,
    )


def _pair(pair: dict[str, Any]) -> Pair:
    rows = [_row(row) for row in pair["rows"]]
    return Pair(pair["arm"], pair["base"], pair["verdict"], pair["design"], pair["controlled"], rows)


def _row(row: dict[str, Any]) -> Row:
    interval, judged = row["interval"], row["judged"]
    return Row(
        metric=row["metric"],
        label=row["label"],
        unit=row["unit"],
        base=row["base"],
        treated=row["treated"],
        difference=row["difference"],
        n=row["n"],
        interval=None if interval is None else Interval(interval["low"], interval["high"], interval["p"]),
        no_interval=row["no_interval"],
        better=row["better"],
        effect=None if judged is None else judged["effect"],
        json=row,
    )


def export(
    source: Pathlike,
    *,
    to: str,
    out: Pathlike,
    weights: Pathlike | None = None,
    dtype: Literal["f32", "bf16"] | None = None,
    arch: str | None = None,
    tokenizer_file: Pathlike | None = None,
    options: Iterable[str] = (),
    progress: Progress = True,
) -> list[Path]:
    """Writes a run, a lock or an architecture for another program, and returns the files.

    `to` is a format of `canonc export --help`, such as "hf" or "torch"; `options` are further options of it. What it says
    about the weights and the tokenizer goes to `progress`.
    """
    named = words_of(options, weights=weights, dtype=dtype, arch=arch, tokenizer_file=tokenizer_file)
    words = ["export", path_argument(source), f"--to={to}", "--out", path_argument(out), *named]
    _, printed = follow(words, progress)
    return [Path(line) for line in printed.splitlines()]
