"""Trains a lock with PyTorch: FSDP2, checkpoints of `torch.distributed.checkpoint`, canonc's log. To read, and to change.

    torchrun --nproc-per-node 8 train.py --out runs/NAME

A run that is stopped goes on from its newest checkpoint, on any number of ranks. It stops by itself, with a checkpoint
and exit code 75, at SIGTERM, SIGINT or SIGUSR2.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from . import Error, Lock, Loss, Recorder, Updates, clip, initialise, module, optimizer, shard, tagged, trainer, windows


def train(
    lock: Lock,
    folder: str | os.PathLike[str],
    *,
    kernels: str | dict[str, str] = "generated",
    device: str | None = None,
    compile: bool | str = False,
    checkpointing: bool | None = None,
    replicas: int = 1,
    save_every: int = 0,
    until: int | None = None,
) -> bool:
    """Trains until the lock's last step, or `until` one; returns whether the run is finished. Every rank calls it.

    `replicas` divides the ranks into groups that each hold the whole model. The state is saved every `save_every` steps (if
    not said, as often as the lock keeps checkpoints) and whenever training stops.
    """
    folder, stop = Path(folder), Stop()
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    started_here = not dist.is_initialized()
    if started_here:
        start(place)
    rank, world = dist.get_rank(), dist.get_world_size()
    if place.type == "cuda":
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(place)
    sizes, names = ((replicas, world // replicas), ("replicate", "shard")) if replicas > 1 else ((world,), ("shard",))
    mesh = dist.init_device_mesh(place.type, sizes, mesh_dim_names=names)

    model = module(lock, kernels=kernels, device="meta")
    shard(model, mesh, device=place, compile=compile, checkpointing=checkpointing)
    initial = initialise(lock, model)
    updates, loss = optimizer(lock, model), Loss(lock, model)
    record = Recorder(lock, folder, initial=initial, record=trainer(lock, model, updates, script=own_digest()))
    states = folder.with_name(f"{folder.name}.states")
    done = restore(states, model, updates)
    record.cut(done)

    last = min(until or lock.steps, lock.steps)
    every = save_every or lock.training["checkpoint_every"]
    for step in windows(lock, rank, world, done).steps():
        for micro in step:
            loss(micro).backward()
        norm = clip(lock, model)
        mean, terms = loss.take()
        record.step(step, mean, norm, terms)
        if not (abs(mean) < float("inf") and norm < float("inf")):
            raise Error(f"training diverged at step {step.number}: the loss is {mean}, the gradient norm {norm}")
        updates.step(step)
        updates.zero_grad()
        done = step.number
        if record.due(done):
            record.checkpoint(model, updates, done)
        if rank == 0 and done % max(lock.training["log_every"], 1) == 0:
            print(f"step {done}/{lock.steps}  loss {mean:.4f}  norm {norm:.3f}  lr {step.rate:.3g}", flush=True)
        stopping = stop.agreed(place) or done >= last
        if stopping or every and done % every == 0:
            save(states, model, updates, done)
        if stopping:
            break
    if started_here:
        dist.destroy_process_group()
    return done >= lock.steps


def start(device: torch.device) -> None:
    """Joins the ranks that torchrun started; alone, there is one."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def own_digest() -> str:
    """The digest of this file, for the record: a changed loop is another trainer."""
    text = Path(__file__).read_text(encoding="utf-8")
    return tagged("canonc.script.v1", text.replace("\nfrom canonc_torch import ", "\nfrom . import "))


class Stop:
    """Whether a signal asked to stop: all ranks do after the same step."""

    def __init__(self) -> None:
        self.asked = False
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            try:
                signal.signal(name, self._ask)
            except ValueError:  # Not the main thread: then only the last step stops.
                break

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True

    def agreed(self, device: torch.device) -> bool:
        asked = torch.tensor(float(self.asked), device=device)
        dist.all_reduce(asked)
        return bool(asked > 0)


def save(folder: Path, model: torch.nn.Module, updates: Updates, step: int) -> None:
    """Saves the state as `step-N`, which exists only when it is complete, and removes older ones but one."""
    name = folder / f"step-{step:010}"
    weights, moments = get_state_dict(model, updates.all)
    half = name.with_name(f".{name.name}")
    dcp.save({"model": weights, "optimizers": moments, "step": step}, checkpoint_id=half)
    if dist.get_rank() == 0:
        shutil.rmtree(name, ignore_errors=True)
        half.rename(name)
        for old in sorted(name.parent.glob("step-*"))[:-2]:
            shutil.rmtree(old)
    dist.barrier()


def restore(folder: Path, model: torch.nn.Module, updates: Updates) -> int:
    """Loads the newest state; returns its step, or 0. Rank 0 looks, and all ranks do as it says."""
    found: list[object] = [None]
    if dist.get_rank() == 0:
        found = [max((str(path) for path in folder.glob("step-*")), default=None)]
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    weights, moments = get_state_dict(model, updates.all)
    state = {"model": weights, "optimizers": moments, "step": 0}
    dcp.load(state, checkpoint_id=found[0])
    set_state_dict(model, updates.all, model_state_dict=state["model"], optim_state_dict=state["optimizers"])
    updates.restore()
    return int(state["step"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains the lock beside this file, or another one.")
    parser.add_argument("--lock", default=os.path.dirname(os.path.abspath(__file__)), help="an exported folder, or a lock")
    parser.add_argument("--out", required=True, help="the run's folder; a run that was stopped goes on there")
    parser.add_argument("--data", help="prepared documents, if the lock trains on text [default: data/SOURCE.index]")
    parser.add_argument("--kernels", default="generated", help="generated, auto, or some by name: gla_scan=fla,attention=flex")
    parser.add_argument("--device", help="cuda or cpu [default: cuda if there is one]")
    parser.add_argument("--compile", nargs="?", const=True, default=False, help="compile each layer, in a mode of torch.compile")
    parser.add_argument("--checkpointing", action=argparse.BooleanOptionalAction, default=None, help="compute layers again in the backward pass")
    parser.add_argument("--replicas", type=int, default=1, help="groups of ranks that each hold the whole model")
    parser.add_argument("--save-every", type=int, default=0, help="steps between saved states [default: as the lock]")
    parser.add_argument("--until", type=int, help="stop after this step")
    parser.add_argument("--finished", action="store_true", help="only say `yes` or `no`: whether the log has the last step")
    given = vars(parser.parse_args())
    if "=" in given["kernels"]:
        given["kernels"] = dict(pair.split("=", 1) for pair in given["kernels"].split(","))
    try:
        lock = Lock(given.pop("lock"), data=given.pop("data"))
        if given.pop("finished"):
            log = Path(given["out"], "metrics.jsonl")
            sys.exit(print("yes" if log.exists() and len(log.read_bytes().splitlines()) > lock.steps else "no"))
        finished = train(lock, given.pop("out"), **given)
    except Error as error:
        sys.exit(f"error: {error}")
    sys.exit(0 if finished else 75)


if __name__ == "__main__":
    main()
