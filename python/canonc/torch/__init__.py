"""Trains canonc's locks with PyTorch's own distributed stack, and writes runs that canonc reads back.

    import canonc.torch as ct

    model = ct.module("arch/llama_demo.canon")    # an nn.Module like any other, with initial values
    ct.train(ct.Lock("lockfiles/demo_llama.lock"), "runs/demo_llama")

`ct.train` is a loop over the parts below, to read and to copy: `loop.py`. It needs PyTorch 2.11 or newer and the program
`canonc`, which makes the windows. Losses, norms and weights agree with `canonc run` to rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._data import Micro, Step, Windows, windows
from ._hash import tagged
from ._kernels import KERNELS
from ._lock import Error, Lock, Parameter
from ._model import digest, draw, initialise, module, on_first, shard
from ._optim import Loss, Muon, Updates, clip, optimizer
from ._record import Recorder, script_digest, trainer

__all__ = [
    "KERNELS",
    "Error",
    "Lock",
    "Loss",
    "Micro",
    "Muon",
    "Parameter",
    "Recorder",
    "Step",
    "Updates",
    "Windows",
    "clip",
    "digest",
    "draw",
    "initialise",
    "module",
    "on_first",
    "optimizer",
    "script_digest",
    "shard",
    "tagged",
    "train",
    "trainer",
    "windows",
]


if TYPE_CHECKING:
    from .loop import train as train


def __getattr__(name: str) -> object:
    # The loop imports what is above.
    if name == "train":
        from .loop import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
