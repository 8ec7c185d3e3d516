"""Trains canonc's locks with PyTorch's own distributed stack, and writes runs that canonc reads back.

    import canonc.torch as ct

    lock = ct.Lock("lockfiles/demo_llama.lock")
    model = ct.module(lock, device="meta")       # an nn.Module like any other; ct.module("arch/llama_demo.canon") is one, too
    ct.shard(model)                              # FSDP2, layer by layer, in the lock's precision
    initial = ct.initialise(lock, model)         # the lock's values, each rank its part
    updates, loss = ct.optimizer(lock, model), ct.Loss(lock, model)
    record = ct.Recorder(lock, "runs/demo_llama", initial=initial, record=ct.trainer(lock, model, updates))
    for step in ct.windows(lock, rank, world).steps():
        for micro in step:
            loss(micro).backward()
        norm = ct.clip(lock, model)
        record.step(step, *loss.take()[:1], norm)
        updates.step(step)
        updates.zero_grad()

`ct.train(lock, "runs/demo_llama")` is this loop with checkpoints and resumption (`loop.py`, to read and to copy). It needs PyTorch
2.11 or newer and the program `canonc`, which makes the windows. Losses, norms and weights agree with `canonc run` to
rounding.
"""

from __future__ import annotations

from ._data import Micro, Step, Windows, windows
from ._hash import tagged
from ._kernels import KERNELS
from ._lock import Error, Lock, Parameter
from ._model import digest, draw, initialise, module, shard
from ._optim import Loss, Muon, Updates, accumulate, clip, optimizer
from ._record import Recorder, trainer

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
    "accumulate",
    "clip",
    "digest",
    "draw",
    "initialise",
    "module",
    "optimizer",
    "shard",
    "tagged",
    "train",
    "trainer",
    "windows",
]


def __getattr__(name: str) -> object:
    # The loop imports what is above.
    if name == "train":
        from .loop import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
