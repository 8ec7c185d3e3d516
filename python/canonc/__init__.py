"""canonc from Python: architectures, locks, training, comparisons and runs.

    >>> import canonc
    >>> canonc.check("arch/mine.canon").problems
    >>> canonc.build("recipes/depo.toml")
    >>> canonc.diff("lockfiles/a.lock", "lockfiles/b.lock", treatment="canon").controlled
    >>> run = canonc.run("lockfiles/a.lock")
    >>> run.weights()["embed"], run.metrics()
    >>> canonc.compare("lockfiles/depo.lock").pairs[0].row("eval_loss").interval

Each function runs the program `canonc` of this package, and `canonc.command` runs any other command of it. A failure is
an :class:`Error` with the program's message and exit code. Nothing here imports PyTorch, NumPy or pandas before a
function needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._command import Error as Error
    from ._command import command as command
    from ._locks import Built as Built
    from ._locks import Difference as Difference
    from ._locks import Verdict as Verdict
    from ._locks import build as build
    from ._locks import diff as diff
    from ._archs import Arch as Arch
    from ._archs import Checked as Checked
    from ._archs import Parameter as Parameter
    from ._archs import Part as Part
    from ._archs import Place as Place
    from ._archs import Problem as Problem
    from ._archs import check as check
    from ._archs import show as show
    from ._audit import Audit as Audit
    from ._audit import Finding as Finding
    from ._audit import audit as audit
    from ._training import Arm as Arm
    from ._training import Comparison as Comparison
    from ._training import Estimate as Estimate
    from ._training import Interval as Interval
    from ._training import Pair as Pair
    from ._training import Row as Row
    from ._training import compare as compare
    from ._training import estimate as estimate
    from ._training import export as export
    from ._training import record as record
    from ._training import run as run
    from ._runs import Run as Run
    from ._runs import Verification as Verification
    from ._runs import load as load

__all__ = [
    "Arch",
    "Arm",
    "Audit",
    "Built",
    "Checked",
    "Comparison",
    "Difference",
    "Error",
    "Estimate",
    "Finding",
    "Interval",
    "Pair",
    "Parameter",
    "Part",
    "Place",
    "Problem",
    "Row",
    "Run",
    "Verdict",
    "Verification",
    "audit",
    "build",
    "check",
    "command",
    "compare",
    "diff",
    "estimate",
    "export",
    "load",
    "record",
    "run",
    "show",
]

_HOMES = {
    "Error": "_command",
    "command": "_command",
    "Built": "_locks",
    "Difference": "_locks",
    "Verdict": "_locks",
    "build": "_locks",
    "diff": "_locks",
    "Arch": "_archs",
    "Checked": "_archs",
    "Parameter": "_archs",
    "Part": "_archs",
    "Place": "_archs",
    "Problem": "_archs",
    "check": "_archs",
    "show": "_archs",
    "Audit": "_audit",
    "Finding": "_audit",
    "audit": "_audit",
    "Arm": "_training",
    "Comparison": "_training",
    "Estimate": "_training",
    "Interval": "_training",
    "Pair": "_training",
    "Row": "_training",
    "compare": "_training",
    "estimate": "_training",
    "export": "_training",
    "record": "_training",
    "run": "_training",
    "Run": "_runs",
    "Verification": "_runs",
    "load": "_runs",
}


def __getattr__(name: str) -> object:
    # The launcher imports this package for every command, so nothing else is imported before it is used.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
