"""The SSD scan of gpu/kernels/scan_ssd.py: against its recurrence in f64, token by token, the CPU kernels' numbers, and the
golden case."""

import unittest

import numpy as np

# The harness first: it makes Triton interpret the kernels.
from gpu.tests.scan_cases import Launcher, ScanTests, gates, golden, numbers, stored  # isort: skip

from gpu.kernels import scan_ssd  # isort: skip

WIDE = ("dt", "a", "d")


def steps(x, dt, a, b, c, d, start=None):
    """y and the state after, token by token."""
    B, T, H, P = x.shape
    G, N = b.shape[2:]
    b, c = np.repeat(b, H // G, 2), np.repeat(c, H // G, 2)
    s = np.zeros((B, H, P, N)) if start is None else start.copy()
    y = np.empty_like(x)
    for t in range(T):
        s = s * np.exp(dt[:, t] * a)[..., None, None]
        s = s + np.einsum("bhp,bhn->bhpn", x[:, t] * dt[:, t, :, None], b[:, t])
        y[:, t] = np.einsum("bhpn,bhn->bhp", s, c[:, t]) + d[:, None] * x[:, t]
    return y, s


def steps_backward(dy, x, dt, a, b, c, d):
    """The gradients of Σ y dy, from zero state."""
    B, T, H, P = x.shape
    G, N = b.shape[2:]
    b, c = np.repeat(b, H // G, 2), np.repeat(c, H // G, 2)
    states = [np.zeros((B, H, P, N))]
    for t in range(T):
        kept = states[-1] * np.exp(dt[:, t] * a)[..., None, None]
        states.append(kept + np.einsum("bhp,bhn->bhpn", x[:, t] * dt[:, t, :, None], b[:, t]))
    dx, ddt, db, dc = (np.zeros_like(value) for value in (x, dt, b, c))
    da = np.zeros_like(a)
    ds = np.zeros_like(states[0])
    for t in reversed(range(T)):
        ds = ds + np.einsum("bhp,bhn->bhpn", dy[:, t], c[:, t])
        dc[:, t] = np.einsum("bhpn,bhp->bhn", states[t + 1], dy[:, t])
        into = np.einsum("bhpn,bhn->bhp", ds, b[:, t])
        dx[:, t] = into * dt[:, t, :, None] + d[:, None] * dy[:, t]
        db[:, t] = np.einsum("bhpn,bhp->bhn", ds, x[:, t]) * dt[:, t, :, None]
        decay = np.exp(dt[:, t] * a)
        kept = decay * (ds * states[t]).sum((2, 3))
        ddt[:, t] = (into * x[:, t]).sum(2) + a * kept
        da += (dt[:, t] * kept).sum(0)
        ds = ds * decay[..., None, None]

    def grouped(value):
        return value.reshape(B, T, G, H // G, N).sum(3)

    dd = (dy * x).sum((0, 1, 3))
    return {"x": dx, "dt": ddt, "a": da, "b": grouped(db), "c": grouped(dc), "d": dd}


def launcher(dtype, operands, tiles):
    B, T, H, P = operands["x"].shape
    G, N = operands["b"].shape[2:]
    run = Launcher(
        scan_ssd.SPECS, dtype, {"N": N, "BLOCK": 16, "STAGES": 1, **tiles} if tiles else {"N": N},
        {"B": B, "T": T, "H": H, "G": G, "P": P, "has_start": 0},
    )  # fmt: skip
    run.put(**operands)
    C = tiles.get("CHUNK", 64)
    NT = -(-T // C)
    run.room("scores", B, G, NT, C, C)
    run.room("states", B, H, NT, P, N)
    run.room("last", B, H, P, N)
    run.run("ssd_scores")
    return run, NT


def forward(dtype, operands, tiles, start=None):
    run, _ = launcher(dtype, operands, tiles)
    run.put(start=start)
    run.sizes["has_start"] = int(start is not None)
    run.room("y", *operands["x"].shape)
    run.run("ssd_states")
    run.run("ssd_output")
    return {"y": run.get("y"), "state": run.get("last")}


def backward(dtype, operands, dy, tiles):
    run, NT = launcher(dtype, operands, tiles)
    B, _, H, P = operands["x"].shape
    N, C = operands["b"].shape[3], tiles.get("CHUNK", 64)
    run.put(dy=dy, start=None)
    for name, value in operands.items():
        run.room(f"d{name}", *value.shape)
    run.room("gradients", B, H, NT, P, N)
    run.room("weights", B, H, NT, C, C)
    run.room("rows", 2, B, H, NT, C)
    run.room("parts", 2, B, H, NT)
    for kernel in ("states", "state_gradients", "value_gradients", "gate_gradients", "group_gradients", "parameters"):
        run.run(f"ssd_{kernel}")
    return {name: run.get(f"d{name}") for name in operands}


def case(dtype, B, T, H, width, strength, G=1):
    """With a = −1, gates are −dt."""
    P, N = width
    dt = np.abs(numbers(1, B, T, H)) if strength == "random" else -gates(1, strength, B, T, H)
    a = -np.exp(numbers(2, H)) if strength == "random" else -np.ones(H)
    operands = {
        "x": numbers(3, B, T, H, P), "dt": dt, "a": a, "b": numbers(4, B, T, G, N), "c": numbers(5, B, T, G, N),
        "d": numbers(6, H),
    }  # fmt: skip
    return {name: stored(value, "f32" if name in WIDE else dtype) for name, value in operands.items()}


class Ssd(ScanTests, unittest.TestCase):
    name, operands = "scan.ssd", ("x", "dt", "a", "b", "c", "d")
    timed = ("x", "dt", "b", "c")
    tiles = {"CHUNK": 64, "BLOCK_P": 16, "BLOCK_N": 16}
    varied = [
        (tiles, {"B": 2, "T": 70, "H": 4, "G": 1, "width": (16, 32)}),
        (tiles, {"B": 2, "T": 70, "H": 4, "G": 2, "width": (16, 32)}),
        ({"CHUNK": 16, "BLOCK_P": 16, "BLOCK_N": 32}, {"B": 2, "T": 70, "H": 4, "G": 4, "width": (16, 32)}),
    ]
    usual = mild = "random"
    strengths = (None, *ScanTests.strengths)
    steps, steps_backward = staticmethod(steps), staticmethod(steps_backward)
    forward, backward, case = staticmethod(forward), staticmethod(backward), staticmethod(case)

    def test_golden(self):
        tensors, metadata = golden("ssd_scan")
        operands = {name: tensors[f"in/{name}"] for name in self.operands}
        self.compare_golden(tensors, operands, float(metadata["tolerance"]))


if __name__ == "__main__":
    unittest.main()
