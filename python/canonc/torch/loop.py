"""Trains a lock with PyTorch: FSDP2, checkpoints of `torch.distributed.checkpoint`, canonc's log. To read, and to change.

    torchrun --nproc-per-node 8 train.py --out runs/NAME

A run that is stopped goes on from its newest checkpoint, on any number of ranks. It stops by itself, with a checkpoint
and exit code 75, at SIGTERM, SIGINT or SIGUSR2.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from . import Error, Lock, Loss, Recorder, Updates, clip, initialise, module, on_first, optimizer, script_digest, shard, trainer, windows


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

    Training that diverges is an `Error`, and the run is over: `canonc record` attests that it diverged. `replicas` divides the
    ranks into groups that each hold the whole model. The state is saved every `save_every` steps, by default as often as the
    lock keeps checkpoints, and whenever training stops.
    """
    folder, target = Path(folder), torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    started_here = not dist.is_initialized()
    if started_here:
        start(target)
    rank, world = dist.get_rank(), dist.get_world_size()
    target, mesh = meshed(target, replicas)
    model = module(lock, kernels=kernels, device="meta", runs_on=target)
    shard(model, mesh, device=target, compile=compile, checkpointing=checkpointing)
    initial = initialise(lock, model)
    updates, loss = optimizer(lock, model), Loss(lock, model)
    record = Recorder(lock, folder, initial=initial, record=trainer(lock, model, updates, script=own_digest()))
    states = States(folder, lock, model, updates)
    last = min(until or lock.steps, lock.steps)
    every = save_every or lock.training["checkpoint_every"]
    with contextlib.ExitStack() as stack:
        stack.callback(record.close)
        done = states.restore()
        record.cut(done)
        stop = stack.enter_context(Stop())
        # Nothing is left of a run that is there already.
        steps = windows(lock, rank, world, done if done < last else lock.steps).steps()
        for step in stack.enter_context(contextlib.closing(steps)):
            for micro in step:
                loss(micro).backward()
            norm = clip(lock, model)
            mean, terms = loss.take()
            record.step(step, mean, norm, terms)
            diverged = not (abs(mean or 0.0) < float("inf") and norm < float("inf"))
            updates.step(step)
            updates.zero_grad()
            done = step.number
            if record.due(done) or diverged:
                record.checkpoint(model, updates, done)
            if diverged:
                raise Error(f"training diverged at step {done}: the loss is {mean}, the gradient norm {norm}; `canonc record {folder}` attests it", 1)
            if rank == 0 and done % max(lock.training["log_every"], 1) == 0:
                print(f"step {done}/{lock.steps}  loss {mean or 0.0:.4f}  norm {norm:.3f}  lr {step.rate:.3g}", flush=True)
            stopping = stop.agreed(target)
            if stopping or done >= last or every and done % every == 0:
                record.sync()
                states.save(done)
            if stopping and done < lock.steps:
                states.mark_stopped()
            if stopping or done >= last:
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


def meshed(device: torch.device, replicas: int) -> tuple[torch.device, Any]:
    """This rank's device, and the ranks as shards, or as replicas of shards."""
    world = dist.get_world_size()
    if world % replicas:
        raise Error(f"{world} ranks are not {replicas} groups of equal size: give a number of replicas that divides them")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    sizes, names = ((replicas, world // replicas), ("replicate", "shard")) if replicas > 1 else ((world,), ("shard",))
    return device, dist.init_device_mesh(device.type, sizes, mesh_dim_names=names)


def own_digest() -> str:
    """The digest of this file and the package, for the record: a changed loop is another trainer."""
    text = Path(__file__).read_text(encoding="utf-8")
    return script_digest(text.replace("\nfrom canonc_torch import ", "\nfrom . import "))


class Stop:
    """Whether a signal asked to stop: all ranks do after the same step. The former handlers come back after the block."""

    def __init__(self) -> None:
        self.asked = False
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stop:
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            # Outside the main thread only the last step stops.
            with contextlib.suppress(ValueError):
                self._former[name] = signal.signal(name, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        for name, handler in self._former.items():
            signal.signal(name, handler)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True

    def agreed(self, device: torch.device) -> bool:
        asked = torch.tensor(float(self.asked), device=device)
        dist.all_reduce(asked)
        return bool(asked > 0)


class States:
    """The states of a run that training goes on from, beside its folder: the two newest. Every rank makes each call."""

    def __init__(self, run: Path, lock: Lock, model: torch.nn.Module, updates: Updates) -> None:
        self.folder = run.with_name(f"{run.name}.states")
        self.lock, self.model, self.updates = lock, model, updates
        #: Is there after a signal stopped training, for a script that queues the job again.
        self.stopped = self.folder / "stopped"

    def _state(self, step: int) -> dict[str, Any]:
        weights, moments = get_state_dict(self.model, self.updates.all)
        return {"model": weights, "optimizers": moments, "step": step, "lock": self.lock.id}

    def save(self, step: int) -> None:
        """Saves the state as `step-N`, which exists only when it is complete."""
        name = self.folder / f"step-{step:010}"
        partial = name.with_name(f".{name.name}")
        dcp.save(self._state(step), checkpoint_id=partial)
        on_first(lambda: self._rename(partial, name))

    def _rename(self, partial: Path, name: Path) -> None:
        shutil.rmtree(name, ignore_errors=True)
        partial.rename(name)
        for old in sorted(self.folder.glob("step-*"))[:-2]:
            shutil.rmtree(old)

    def mark_stopped(self) -> None:
        on_first(lambda: self.stopped.write_text("", encoding="utf-8"))

    def restore(self) -> int:
        """Loads the newest state; returns its step, or 0. Rank 0 looks for it."""
        newest = on_first(self._newest)
        if newest is None:
            return 0
        state = self._state(0)
        dcp.load(state, checkpoint_id=newest)
        if state["lock"] != self.lock.id:
            raise Error(f"`{newest}` is a state of lock {state['lock'][:12]}, and this is {self.lock.id[:12]}: name another folder with --out")
        set_state_dict(self.model, self.updates.all, model_state_dict=state["model"], optim_state_dict=state["optimizers"])
        self.updates.restore()
        return int(state["step"])

    def _newest(self) -> str | None:
        self.stopped.unlink(missing_ok=True)
        for unfinished in self.folder.glob(".step-*"):
            shutil.rmtree(unfinished)
        return max((str(path) for path in self.folder.glob("step-*")), default=None)


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
    given = vars(parser.parse_args())
    if "=" in given["kernels"]:
        given["kernels"] = dict(pair.split("=", 1) for pair in given["kernels"].split(","))
    try:
        lock = Lock(given.pop("lock"), data=given.pop("data"))
        finished = train(lock, given.pop("out"), **given)
    except Error as error:
        # A message of the program begins so.
        print("error: " + str(error).removeprefix("error: "), file=sys.stderr)
        sys.exit(error.exit_code)
    sys.exit(0 if finished else 75)


if __name__ == "__main__":
    main()
