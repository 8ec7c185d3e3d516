"""The lock's loss, clipping and updates: AdamW of PyTorch, and Muon in f32."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from ._data import Micro, Step
from ._lock import Error, Lock
from ._model import device_of


class Loss:
    """`loss(micro)` is this rank's part of a step's loss, to call `backward` on; `take()` ends the step.

    It is divided by the counted targets of the whole step, so gradients add up over micro-batches. Of a sharded module it is
    multiplied by the number of ranks, over which FSDP2 takes the mean.
    """

    def __init__(self, lock: Lock, model: Any) -> None:
        self.lock, self.model = lock, model
        self.weights: dict[str, float] = lock.training["loss"]
        precision = getattr(model, "sharding", {}).get("precision", "f32")
        if precision != lock.precision:
            raise Error(f"the lock computes in {lock.precision}, and this module in {precision}: call `canonc.torch.shard(model)`")
        # FSDP2 takes means over ranks.
        self._ranks = ranks_of(model)
        if dist.is_initialized() and dist.get_world_size() != self._ranks:
            raise Error(f"{dist.get_world_size()} ranks train this module, and it is not divided among them: call `canonc.torch.shard(model)`")
        self._sums: dict[str, torch.Tensor] = {}
        self._counted = 0

    def __call__(self, micro: Micro) -> torch.Tensor:
        micro = micro.to(device_of(self.model))
        named = {"windows": micro.windows} if hasattr(self.model, "drops_at") else {}
        squares = {name: self.weights[name] for name in ("nll_square", "z_loss")}
        sums = self.model(micro.tokens, micro.targets, **named, **squares)
        # Where no target counts, every sum is 0.
        self._counted, counted = micro.counted, max(micro.counted, 1)
        loss = sums["loss"] / counted
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach().double()
            if name != "loss":
                weight = self.weights["ahead" if name.startswith("ahead_") else name]
                # Means are of this micro-batch; later tokens' losses are sums over targets, as the loss is.
                loss = loss + weight * (value / counted if name.startswith("ahead_") else value)
        return loss * self._ranks

    def take(self) -> tuple[float | None, dict[str, float]]:
        """The step's loss, None if no target counted, and the auxiliary losses that its lock weighs, as canonc logs them.

        Every rank must call it.
        """
        names = sorted(self._sums)
        sums = torch.stack([self._sums[name].reshape(()) for name in names])
        if dist.is_initialized():
            dist.all_reduce(sums)
        values = dict(zip(names, sums.tolist()))
        self._sums = {}
        terms = {}
        for name in ("balance", "router_z", *(f"ahead_{n}" for n in range(2, 9))):
            weight = self.weights["ahead" if name.startswith("ahead_") else name]
            if name in values and weight:
                terms[name] = values[name] / (max(self._counted, 1) if name.startswith("ahead_") else self.lock.training["micro_batches"])
        return values["loss"] / self._counted if self._counted else None, terms


def ranks_of(model: Any) -> int:
    """The ranks that a module is divided among."""
    return int(getattr(model, "sharding", {}).get("ranks", 1))


def _add_up(gradient: torch.Tensor, ranks: int) -> None:
    """Makes a gradient that FSDP2 leaves alone its mean over ranks, as FSDP2 does with the others; once."""
    if ranks > 1 and not getattr(gradient, "is_mean", False):
        dist.all_reduce(gradient)
        gradient.div_(ranks)
        gradient.is_mean = True


@torch.no_grad()
def clip(lock: Lock, model: nn.Module) -> float:
    """Clips the gradients, and returns their norm before that. Every rank must call it."""
    total = torch.zeros((), dtype=torch.float64, device=device_of(model))
    gradients = []
    for row in lock.params:
        parameter = model.get_parameter(row.name)
        if row.update == "frozen":
            continue
        if parameter.grad is None:
            # The lock's loss does not depend on it, such as on what only chooses experts; its weight decays all the same.
            parameter.grad = torch.zeros_like(parameter)
        gradient = parameter.grad
        gradients.append(gradient)
        if isinstance(gradient, DTensor):
            local = gradient.to_local().double().square().sum()
            mesh = gradient.device_mesh
            for axis, placement in enumerate(gradient.placements):
                if not placement.is_replicate():
                    dist.all_reduce(local, group=mesh.get_group(axis))
            total += local
        else:
            _add_up(gradient, ranks_of(model))
            total += gradient.double().square().sum()
    norm = float(total.sqrt())
    limit = lock.training["optimizer"].get("clip")
    # As PyTorch and canonc: min(1, limit / (norm + 1e-6)), rounded to f32 where it multiplies.
    if limit is not None and limit / (norm + 1e-6) < 1:
        for gradient in gradients:
            local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
            local.mul_(limit / (norm + 1e-6))
    return norm


class Muon(torch.optim.Optimizer):
    """Muon (Jordan 2024) as canonc computes it: five iterations in f32, on whole matrices; a cube is several of them.

    PyTorch's own iterates in bf16 and takes no DTensor. Each rank computes every matrix and keeps its rows.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {"lr": 0.0, "momentum": 0.95, "nesterov": True, "scale": 1.0, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                self._update(parameter, group)

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state, momentum = self.state[parameter], group["momentum"]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        gradient, mean = parameter.grad, state["momentum"]
        assert gradient is not None
        mean.mul_(momentum).add_(gradient, alpha=1 - momentum)
        update = gradient.mul(1 - momentum).add_(mean, alpha=momentum) if group["nesterov"] else mean
        full = update.full_tensor() if isinstance(update, DTensor) else update
        full = orthogonal(full)
        if isinstance(parameter, DTensor):
            mesh = parameter.device_mesh
            replicas = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
            full = replicas.redistribute(placements=parameter.placements)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(full, alpha=-group["lr"] * group["scale"])


def orthogonal(u: torch.Tensor) -> torch.Tensor:
    """Nearly orthogonal matrices in the direction of u […, rows, columns]: Newton and Schulz, five times."""
    x = u.float().flatten(0, -3) if u.dim() > 2 else u.float().unsqueeze(0)  # [matrices, rows, columns]
    norm = x.double().square().sum((-1, -2), keepdim=True).sqrt()
    x = x / (norm + 1e-7).float()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.775 * a + 2.0315 * (a @ a)) @ x
    return (x.mT if tall else x).reshape(u.shape)


class Updates:
    """The optimizers of a lock. `step(step)` sets the learning rate of the step and updates."""

    def __init__(self, lock: Lock, model: nn.Module, *, fused: bool | None = None) -> None:
        self.lock, self._ranks = lock, ranks_of(model)
        values = lock.training["optimizer"]
        self.fused = device_of(model).type == "cuda" if fused is None else fused
        adamw: dict[tuple[float, float], list[nn.Parameter]] = {}
        muon: list[dict[str, Any]] = []
        for row in lock.params:
            parameter = model.get_parameter(row.name)
            if row.update == "adamw":
                adamw.setdefault((row.lr, row.weight_decay), []).append(parameter)
            elif row.update == "muon":
                muon.append({"params": [parameter], "factor": row.lr, "weight_decay": row.weight_decay, **(row.muon or {})})
        groups = [
            {"params": params, "factor": factor, "weight_decay": decay, "betas": (values["beta1"], values["beta2"]), "eps": values["eps"]}
            for (factor, decay), params in adamw.items()
        ]
        self.all: list[torch.optim.Optimizer] = []
        if groups:
            self.all.append(torch.optim.AdamW(groups, lr=values["lr"], fused=self.fused or None))
        if muon:
            self.all.append(Muon(muon))
        self._own = [[{k: v for k, v in group.items() if k != "params"} for group in one.param_groups] for one in self.all]

    def restore(self) -> None:
        """Sets every hyper-parameter from the lock again: loading a state also loads those that it was saved with."""
        for one, groups in zip(self.all, self._own):
            if len(one.param_groups) != len(groups):
                raise Error("the loaded state has other groups of parameters than the lock")
            for group, own in zip(one.param_groups, groups):
                group.update(own)

    def step(self, step: Step | float) -> None:
        """Updates with the learning rate of a step."""
        rate = step.rate if isinstance(step, Step) else step
        for one in self.all:
            for group in one.param_groups:
                group["lr"] = rate * group["factor"]
                for parameter in group["params"]:
                    if parameter.grad is not None and not isinstance(parameter.grad, DTensor):
                        _add_up(parameter.grad, self._ranks)
            one.step()

    def zero_grad(self) -> None:
        for one in self.all:
            one.zero_grad(set_to_none=True)

    def moments(self, parameter: torch.Tensor) -> list[torch.Tensor]:
        """The running means of a parameter: first and second of AdamW, one of Muon, none of a frozen one."""
        for one in self.all:
            if parameter in one.state:
                state = one.state[parameter]
                return [state[name] for name in ("exp_avg", "exp_avg_sq", "momentum") if name in state]
        return []

    def record(self) -> dict[str, Any]:
        """What a trainer record says of them."""
        known: dict[str, Any] = {"optimizer.fused": self.fused}
        for one in self.all:
            key, name = ("muon", "canonc.torch.Muon") if isinstance(one, Muon) else ("adamw", "torch.optim.AdamW")
            known[f"optimizer.{key}"] = name
        return known


def optimizer(lock: Lock, model: nn.Module, *, fused: bool | None = None) -> Updates:
    """The optimizers of a lock, with its groups, decays and learning rates. `fused` kernels are used on GPUs by default."""
    return Updates(lock, model, fused=fused)
