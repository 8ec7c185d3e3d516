"""RWKV-6's scan, the kernels of gpu/kernels/scan_gla.py with READ_FIRST: against its recurrence in f64, token by token, the
CPU kernels' numbers, and the golden case."""

import unittest

import numpy as np

# The harness first: it makes Triton interpret the kernels.
from gpu.tests.scan_cases import ScanTests, gates, golden, numbers, stored  # isort: skip

from gpu.tests import test_scan_gla as gla

# The kernels call r a query.
NAMES = {"r": "q"}


def steps(r, k, v, g, u, start=None):
    """y and the state after, token by token."""
    B, T, H, K = r.shape
    s = np.zeros((B, H, K, v.shape[3])) if start is None else start.copy()
    y = np.empty_like(v)
    for t in range(T):
        written = np.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
        y[:, t] = np.einsum("bhkv,bhk->bhv", s + u[..., None] * written, r[:, t])
        s = s * np.exp(g[:, t])[..., None] + written
    return y, s


def steps_backward(dy, r, k, v, g, u):
    """The gradients of Σ y dy, from zero state."""
    B, T, H, K = r.shape
    states = [np.zeros((B, H, K, v.shape[3]))]
    for t in range(T):
        states.append(steps(*(x[:, t : t + 1] for x in (r, k, v, g)), u, states[-1])[1])
    dr, dk, dv, dg, du = (np.zeros_like(value) for value in (r, k, v, g, u))
    ds = np.zeros_like(states[0])
    for t in reversed(range(T)):
        out, through = dy[:, t], (dy[:, t] * v[:, t]).sum(2)[..., None]
        dr[:, t] = np.einsum("bhkv,bhv->bhk", states[t], out) + through * u * k[:, t]
        dk[:, t] = np.einsum("bhkv,bhv->bhk", ds, v[:, t]) + through * u * r[:, t]
        dv[:, t] = np.einsum("bhkv,bhk->bhv", ds, k[:, t]) + (r[:, t] * u * k[:, t]).sum(2)[..., None] * out
        du += (through * r[:, t] * k[:, t]).sum(0)
        ds = ds * np.exp(g[:, t])[..., None]
        dg[:, t] = (ds * states[t]).sum(3)
        ds = ds + np.einsum("bhk,bhv->bhkv", r[:, t], out)
    return {"r": dr, "k": dk, "v": dv, "g": dg, "u": du}


def renamed(operands):
    return {NAMES.get(name, name): value for name, value in operands.items()}


def forward(dtype, operands, tiles, start=None):
    return gla.forward(dtype, renamed(operands), tiles, start, scale=1.0, read_first=1)


def backward(dtype, operands, dy, tiles):
    gradients = gla.backward(dtype, renamed(operands), dy, tiles, scale=1.0, read_first=1)
    return {name: gradients[NAMES.get(name, name)] for name in operands}


def case(dtype, B, T, H, width, strength):
    K, V = width
    operands = {
        "r": numbers(1, B, T, H, K) * 0.3, "k": numbers(2, B, T, H, K), "v": numbers(3, B, T, H, V),
        "g": gates(4, strength, B, T, H, K), "u": numbers(5, H, K),
    }  # fmt: skip
    return {name: stored(value, "f32" if name == "u" else dtype) for name, value in operands.items()}


class Rwkv6(ScanTests, unittest.TestCase):
    name, operands = "scan.rwkv6", ("r", "k", "v", "g", "u")
    timed = ("r", "k", "v", "g")
    tiles, varied = gla.Gla.tiles, gla.Gla.varied
    compiled = (("bf16", 64), ("f32", 64))
    steps, steps_backward = staticmethod(steps), staticmethod(steps_backward)
    forward, backward, case = staticmethod(forward), staticmethod(backward), staticmethod(case)

    def test_golden(self):
        tensors, metadata = golden("rwkv6_scan")
        operands = {name: tensors[f"in/{name}"] for name in self.operands}
        self.compare_golden(tensors, operands, float(metadata["tolerance"]))

    def test_neighbours_have_no_gate_between_them(self):
        """Two tokens: the gates change only what a third would read, so their gradients are exactly 0."""
        for dtype in ("f32", "bf16"):
            operands = case(dtype, 1, 2, 1, (16, 16), None)
            dy = stored(numbers(8, 1, 2, 1, 16), dtype)
            assert not backward(dtype, operands, dy, self.tiles)["g"].any(), dtype


if __name__ == "__main__":
    unittest.main()
