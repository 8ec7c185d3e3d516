"""Starts the program `canonc` in place of this process, with the PyTorch of this Python's environment.

PyTorch is located without being imported, which would take seconds. The program checks its version, and only for
commands that use tensors. A CANONC_TORCH that the user has set is kept.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from typing import NoReturn

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "canonc")


def _torch() -> str | None:
    """The folder of the package `torch` that this Python would import."""
    # Not `find_spec`: it would also ask finders of other packages, which can import anything.
    spec = PathFinder.find_spec("torch")
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return None
    return spec.submodule_search_locations[0]


def environment() -> dict[str, str]:
    """The program's environment."""
    variables = dict(os.environ)
    # With CANONC_PYTHON, both are those of a launcher above this process, perhaps of another environment.
    if "CANONC_PYTHON" not in variables and variables.get("CANONC_TORCH"):
        return variables
    variables["CANONC_PYTHON"] = sys.executable
    torch = _torch()
    if torch is None:
        variables.pop("CANONC_TORCH", None)
    else:
        variables["CANONC_TORCH"] = torch
    return variables


def main() -> NoReturn:
    try:
        os.execve(PROGRAM, ["canonc", *sys.argv[1:]], environment())
    except OSError as error:
        sys.stderr.write(
            f"error: `{PROGRAM}` cannot be started: {error.strerror}\n"
            f"  = help: `{sys.executable} -m pip install --force-reinstall --no-deps canonc` installs it again\n"
        )
        sys.exit(3)
