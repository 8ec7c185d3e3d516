"""The module of a lock: generated code, its initial values, and its division among ranks by FSDP2."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from . import _draws, _hash, _kernels
from ._lock import Error, Lock, Parameter

_count = itertools.count()
#: Elements that are read at a time.
_PIECE = 1 << 22


def code(lock: Lock) -> ModuleType:
    """A fresh copy of the generated code, whose functions can be replaced."""
    name = f"canonc_model_{next(_count)}"
    spec = importlib.util.spec_from_file_location(name, lock.folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def module(
    source: Lock | str,
    *,
    kernels: str | dict[str, str] = "generated",
    device: torch.device | str = "cpu",
    runs_on: torch.device | str | None = None,
    arch: str | None = None,
) -> Any:
    """The `nn.Module` of a lock, or of an architecture (a `.canon` file): `model(tokens)` gives logits [batch, time, vocab].

    On `device="meta"` it has no values, for `shard` and `initialise`; `runs_on` is then the device that kernels are chosen for
    (by default, a GPU if there is one). Elsewhere it has the lock's initial values; those of
    an architecture are drawn with seed 0. `kernels` names the functions that compute: "generated", "auto", or one for
    some of them, such as {"attention": "flex", "gla_scan": "fla"}. `model.lock` and `model.kernels` say what it was made of.
    """
    lock = source if isinstance(source, Lock) else Lock(source, arch=arch)
    text = code(lock)
    with torch.device("meta"):
        model = text.Model()
    if runs_on is None:
        on_meta = "cuda" if torch.cuda.is_available() else "cpu"
        runs_on = on_meta if torch.device(device).type == "meta" else device
    model.lock = lock
    model.kernels = _kernels.use(text, kernels, torch.device(runs_on), lock.precision if lock.trains else "f32")
    if lock.trains and "dropout_key" in lock.training:
        key = int(lock.training["dropout_key"])
        model.drop_keys = [_draws.dropout_keys(key, calls) for calls in model.drops_at]
    for row in lock.params:
        model.get_parameter(row.name).requires_grad_(row.update != "frozen")
    if torch.device(device).type != "meta":
        model.to_empty(device=device)
        place_keys(model, torch.device(device))
        draw(lock, model)
    return model


def place_keys(model: Any, device: torch.device) -> None:
    """Moves the keys of dropout to the device."""
    if hasattr(model, "drop_keys"):
        model.drops = [keys.to(device) for keys in model.drop_keys]


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def shard(
    model: Any,
    mesh: Any = None,
    *,
    precision: str | None = None,
    device: torch.device | str | None = None,
    checkpointing: bool | None = None,
    compile: bool | str = False,
    reshard: bool = True,
) -> Any:
    """Divides a module among ranks with FSDP2, layer by layer, in the lock's precision.

    Without a process group it makes one of this process alone. Parameters that keep f32 in a bf16 lock are whole on every
    rank, since a group of FSDP2 has one dtype; `clip` adds their gradients. `mesh` is 1-D (shards) or 2-D (replicas of
    shards). FSDP2 takes the mean of gradients over ranks, and `Loss` accounts for it. `checkpointing` (by default, the lock's
    `platform.recompute`) computes layers again in the backward pass; `compile` is True or a mode.
    """
    lock: Lock = model.lock
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if not dist.is_initialized():
        dist.init_process_group("nccl" if target.type == "cuda" else "gloo", store=dist.HashStore(), rank=0, world_size=1)
    if mesh is None:
        mesh = dist.init_device_mesh(target.type, (dist.get_world_size(),))
    if precision is None:
        precision = lock.precision if lock.trains else "f32"
    policy, ignored = MixedPrecisionPolicy(cast_forward_inputs=False), set()
    if precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
        ignored = {model.get_parameter(row.name) for row in lock.params if row.f32}
    elif precision != "f32":
        raise Error(f"the precision is 'f32' or 'bf16', and not {precision!r}")
    elif target.type == "cuda":
        # PyTorch's convolutions take TF32 unless told otherwise.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if checkpointing is None:
        checkpointing = lock.trains and lock.training["recompute"] != "nothing"
    model.checkpointing = checkpointing
    for layer in model.layers.values():
        if compile:
            layer.compile(mode=None if compile is True else compile)
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard, ignored_params=ignored or None)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False, ignored_params=ignored or None)
    if any(parameter.is_meta for parameter in model.parameters()):
        model.to_empty(device=target)
    model.sharding = {
        "parallel": "fsdp2",
        "ranks": mesh.size(),
        "mesh": "shard " + " x ".join(map(str, mesh.mesh.shape)),
        "precision": precision,
        "compile": ("layer " + ("default" if compile is True else compile)) if compile else "none",
        "checkpointing": "layers" if checkpointing else "none",
        "reshard": reshard,
    }
    place_keys(model, target)
    return model


@torch.no_grad()
def draw(lock: Lock, model: nn.Module, device: torch.device | str | None = None) -> None:
    """Draws the lock's initial values, each rank its part: on the module's device, or on another one."""
    seed = int(lock.training["seed"]) if lock.trains else 0
    for row in lock.params:
        parameter = model.get_parameter(row.name)
        if not isinstance(parameter, DTensor):
            values = torch.empty(row.shape, device=device or parameter.device)
            _initial(lock, row, seed, 0, values)
            parameter.copy_(values)
            continue
        shape, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
        local = parameter.to_local()
        if not local.numel():
            continue
        if any(offset[1:]) or list(shape[1:]) != list(row.shape[1:]):
            raise Error(f"`{row.path}` is divided along another axis than its first: initial values are drawn by rows")
        width = parameter.numel() // max(parameter.shape[0], 1)
        values = torch.empty(list(shape), device=device or local.device)
        _initial(lock, row, seed, offset[0] * width, values)
        local.copy_(values)


def _initial(lock: Lock, row: Parameter, seed: int, first: int, out: torch.Tensor) -> None:
    """Writes elements `first…` of a parameter's initial values into `out`, f32 and contiguous."""
    if row.init != "file":
        _draws.initial(row.init, row.numbers, seed, row.path, first, out)
        return
    flat = out.view(-1)
    for start in range(0, flat.numel(), _PIECE):
        piece = flat[start : start + _PIECE]
        data = bytearray(lock.initial_bytes(row.path, first + start, piece.numel()))
        piece.copy_(torch.frombuffer(data, dtype=torch.float32))


@torch.no_grad()
def digest(lock: Lock, model: nn.Module) -> str:
    """The digest of a module's values, as in canonc's checkpoints. Every rank must call it."""
    rows = []
    for row in lock.params:
        values = whole(model.get_parameter(row.name))
        rows.append((row.path, row.shape, _hash.of_tensor(values) if rank() == 0 else ""))
    text = [_hash.of_tensors(rows) if rank() == 0 else ""]
    if dist.is_initialized():
        dist.broadcast_object_list(text, src=0)
    return str(text[0])


def initialise(lock: Lock, model: nn.Module) -> str:
    """Draws the lock's initial values, each rank its part, and returns the digest of all of them, which canonc's log has.

    Where a device's logarithm or exponential is not exact enough, the CPU draws them. A digest other than the lock's is
    an error; of more than 2^28 values the folder has none, and `canonc record` compares it.
    """
    draw(lock, model)
    drawn = digest(lock, model)
    expected = str(lock.training.get("initial", drawn))
    if drawn != expected:
        draw(lock, model, "cpu")
        drawn = digest(lock, model)
    if drawn != expected:
        raise Error(f"the initial values have the digest {drawn[:12]}, and the lock's have {expected[:12]}: export the lock again")
    return str(drawn)


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def on_first(work: Callable[[], Any]) -> Any:
    """Does something on rank 0 alone; its result, or its error, is that of every rank. Every rank must call it."""
    outcome: list[Any] = [None, None]
    if rank() == 0:
        try:
            outcome[0] = work()
        except (Error, OSError, ValueError) as error:
            outcome[1] = str(error)
    if dist.is_initialized():
        dist.broadcast_object_list(outcome, src=0)
    if outcome[1] is not None:
        raise Error(outcome[1])
    return outcome[0]


def whole(parameter: torch.Tensor) -> torch.Tensor:
    """All values of a parameter, its gradient or a moment. Every rank must call it."""
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
