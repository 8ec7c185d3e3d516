"""canonc from Python: build and compare locks, and read runs.

    >>> import canonc
    >>> canonc.build("recipes/depo.toml")
    >>> canonc.diff("lockfiles/a.lock", "lockfiles/b.lock", treatment="canon").controlled
    >>> run = canonc.load("runs/depo_first")
    >>> run.weights()["embed"], run.metrics()

Each function runs the program `canonc` of this package. A failure of it is an :class:`Error` with the program's message
and exit code. Nothing here imports PyTorch, NumPy or pandas before a function needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._command import Error as Error
    from ._locks import Built as Built
    from ._locks import Difference as Difference
    from ._locks import Verdict as Verdict
    from ._locks import build as build
    from ._locks import diff as diff
    from ._runs import Run as Run
    from ._runs import Verification as Verification
    from ._runs import load as load

__all__ = ["Built", "Difference", "Error", "Run", "Verdict", "Verification", "build", "diff", "load"]

_HOMES = {
    "Error": "_command",
    "Built": "_locks",
    "Difference": "_locks",
    "Verdict": "_locks",
    "build": "_locks",
    "diff": "_locks",
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
