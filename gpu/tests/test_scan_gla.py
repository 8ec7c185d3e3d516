"""The GLA scan of gpu/kernels/scan_gla.py: against its recurrence in f64, token by token, the CPU kernels' numbers, and a
golden case."""

import unittest

import numpy as np

# The harness first: it makes Triton interpret the kernels.
from gpu.tests.scan_cases import Launcher, QueryScanTests, gates, golden, numbers, stored  # isort: skip

from gpu.kernels import scan_gla  # isort: skip


def steps(q, k, v, g, scale, start=None):
    """y and the state after, token by token."""
    B, T, H, K = q.shape
    s = np.zeros((B, H, K, v.shape[3])) if start is None else start.copy()
    y = np.empty_like(v)
    for t in range(T):
        s = s * np.exp(g[:, t])[..., None] + np.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
        y[:, t] = scale * np.einsum("bhkv,bhk->bhv", s, q[:, t])
    return y, s


def steps_backward(dy, q, k, v, g, scale):
    """The gradients of Σ y dy, from zero state."""
    B, T, H, K = q.shape
    states = [np.zeros((B, H, K, v.shape[3]))]
    for t in range(T):
        states.append(steps(*(x[:, t : t + 1] for x in (q, k, v, g)), scale, states[-1])[1])
    dq, dk, dv, dg = (np.zeros_like(value) for value in (q, k, v, g))
    ds = np.zeros_like(states[0])
    for t in reversed(range(T)):
        out = scale * dy[:, t]
        ds = ds + np.einsum("bhk,bhv->bhkv", q[:, t], out)
        dq[:, t] = np.einsum("bhkv,bhv->bhk", states[t + 1], out)
        dk[:, t] = np.einsum("bhkv,bhv->bhk", ds, v[:, t])
        dv[:, t] = np.einsum("bhkv,bhk->bhv", ds, k[:, t])
        ds = ds * np.exp(g[:, t])[..., None]
        dg[:, t] = (ds * states[t]).sum(3)
    return {"q": dq, "k": dk, "v": dv, "g": dg}


def launcher(dtype, operands, tiles, scale, start=None, read_first=0):
    B, T, H, K = operands["q"].shape
    V = operands["v"].shape[3]
    run = Launcher(
        scan_gla.SPECS, dtype, {"K": K, "READ_FIRST": read_first, **tiles},
        {"B": B, "T": T, "H": H, "V": V, "scale": scale, "has_start": int(start is not None)},
    )  # fmt: skip
    run.put(**{"u": None, "bonus": None, **operands, "start": start})
    C = tiles.get("CHUNK", 64)
    NT = -(-T // C)
    for name in ("scores", "dscores"):
        run.room(name, B, H, NT, C, C)
    for name in ("states", "gradients"):
        run.room(name, B, H, NT, K, V)
    for name in ("near_q", "near_k"):
        run.room(name, B, T, H, K)
    if read_first:
        run.room("bonus", B, NT, H, K)
    run.room("last", B, H, K, V)
    run.run("gla_scores")
    run.run("gla_states")
    return run


def forward(dtype, operands, tiles, start=None, *, scale, read_first=0):
    run = launcher(dtype, operands, tiles, scale, start, read_first)
    run.room("y", *operands["v"].shape)
    run.run("gla_output")
    return {"y": run.get("y"), "state": run.get("last")}


def backward(dtype, operands, dy, tiles, *, scale, read_first=0):
    run = launcher(dtype, operands, tiles, scale, read_first=read_first)
    run.put(dy=dy)
    written = [name for name in operands if name != "u"]
    for name in written:
        run.room(f"d{name}", *operands[name].shape)
    for kernel in ("state", "score", "value", "near", "key"):
        run.run(f"gla_{kernel}_gradients")
    gradients = {name: run.get(f"d{name}") for name in written}
    if read_first:
        gradients["u"] = run.get("bonus").sum((0, 1))
    return gradients


def case(dtype, B, T, H, width, strength):
    K, V = width
    operands = {
        "q": numbers(1, B, T, H, K), "k": numbers(2, B, T, H, K), "v": numbers(3, B, T, H, V),
        "g": gates(4, strength, B, T, H, K),
    }  # fmt: skip
    return {name: stored(value, dtype) for name, value in operands.items()}


class Gla(QueryScanTests, unittest.TestCase):
    name, operands = "scan.gla", ("q", "k", "v", "g")
    timed = operands
    steps, steps_backward = staticmethod(steps), staticmethod(steps_backward)
    forward, backward, case = staticmethod(forward), staticmethod(backward), staticmethod(case)

    def test_golden(self):
        tensors, _ = golden("simple_gla")
        operands = {name: tensors[f"in/{name}"] for name in ("q", "k", "v")}
        # One gate for each head, in all channels.
        operands["g"] = np.repeat(tensors["in/g"][..., None], 16, 3)
        self.compare_golden(tensors, operands, 5.6e-6, "o", folded=("g",))


if __name__ == "__main__":
    unittest.main()
