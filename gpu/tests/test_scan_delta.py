"""The delta rule of gpu/kernels/scan_delta.py: against its recurrence in f64, token by token, the CPU kernels' numbers, and
the golden cases."""

import unittest

import numpy as np

# The harness first: it makes Triton interpret the kernels.
from gpu.tests.scan_cases import Launcher, QueryScanTests, gates, golden, numbers, stored  # isort: skip

from gpu.kernels import scan_delta  # isort: skip

WIDE = ("beta", "g")


def steps(q, k, v, beta, g, scale, start=None):
    """y and the state after, token by token."""
    B, T, H, K = q.shape
    s = np.zeros((B, H, K, v.shape[3])) if start is None else start.copy()
    y = np.empty_like(v)
    for t in range(T):
        s = s * np.exp(g[:, t])[..., None, None]
        error = v[:, t] - np.einsum("bhkv,bhk->bhv", s, k[:, t])
        s = s + np.einsum("bhk,bhv->bhkv", k[:, t], beta[:, t, :, None] * error)
        y[:, t] = scale * np.einsum("bhkv,bhk->bhv", s, q[:, t])
    return y, s


def steps_backward(dy, q, k, v, beta, g, scale):
    """The gradients of Σ y dy, from zero state."""
    B, T, H, K = q.shape
    states = [np.zeros((B, H, K, v.shape[3]))]
    for t in range(T):
        states.append(steps(*(x[:, t : t + 1] for x in (q, k, v, beta, g)), scale, states[-1])[1])
    dq, dk, dv, dbeta, dg = (np.zeros_like(value) for value in (q, k, v, beta, g))
    ds = np.zeros_like(states[0])
    for t in reversed(range(T)):
        out = scale * dy[:, t]
        rate, decay = beta[:, t, :, None], np.exp(g[:, t])[..., None, None]
        decayed = states[t] * decay
        error = v[:, t] - np.einsum("bhkv,bhk->bhv", decayed, k[:, t])
        ds = ds + np.einsum("bhk,bhv->bhkv", q[:, t], out)
        dq[:, t] = np.einsum("bhkv,bhv->bhk", states[t + 1], out)
        du = np.einsum("bhkv,bhk->bhv", ds, k[:, t])
        dbeta[:, t] = (du * error).sum(2)
        dv[:, t] = rate * du
        dk[:, t] = np.einsum("bhkv,bhv->bhk", ds, rate * error) - np.einsum("bhkv,bhv->bhk", decayed, rate * du)
        ds = ds - np.einsum("bhk,bhv->bhkv", k[:, t], rate * du)
        dg[:, t] = (ds * decayed).sum((2, 3))
        ds = ds * decay
    return {"q": dq, "k": dk, "v": dv, "beta": dbeta, "g": dg}


def launcher(dtype, operands, tiles, scale, start=None):
    B, T, H, K = operands["q"].shape
    V = operands["v"].shape[3]
    run = Launcher(
        scan_delta.SPECS, dtype, {"K": K, "STAGES": 1, "BLOCK": tiles["BLOCK_V"], **tiles} if tiles else {"K": K},
        {"B": B, "T": T, "H": H, "V": V, "scale": scale, "has_start": int(start is not None)},
    )  # fmt: skip
    run.put(**operands, start=start)
    C = tiles.get("CHUNK", 64)
    NT = -(-T // C)
    for name in ("scores", "inverse", "pull", "push"):
        run.room(name, B, H, NT, C, C)
    run.room("faded", B, T, H, K)
    for name in ("fresh", "written", "dwritten", "dsolved"):
        run.room(name, B, T, H, V)
    for name in ("states", "gradients"):
        run.room(name, B, H, NT, K, V)
    run.room("last", B, H, K, V)
    run.room("rows", 2, B, H, NT, C)
    run.run("delta_inverse")
    for x, out, W, fades in (("k", "faded", K, 1), ("v", "fresh", V, 0)):
        run.sizes |= {"W": W, "fades": fades}
        run.run("delta_rows", x=x, out=out)
    run.run("delta_states")
    return run


def forward(dtype, operands, tiles, start=None, *, scale):
    run = launcher(dtype, operands, tiles, scale, start)
    run.room("y", *operands["v"].shape)
    run.run("delta_output")
    return {"y": run.get("y"), "state": run.get("last")}


def backward(dtype, operands, dy, tiles, *, scale):
    run = launcher(dtype, operands, tiles, scale)
    run.put(dy=dy)
    for name, value in operands.items():
        run.room(f"d{name}", *value.shape)
    run.run("delta_state_gradients")
    run.run("delta_rows_back")
    for kernel in ("pair", "gate", "key"):
        run.run(f"delta_{kernel}_gradients")
    return {name: run.get(f"d{name}") for name in operands}


def case(dtype, B, T, H, width, strength, most=1.0):
    """Keys of length 1, beta in (0, most)."""
    K, V = width
    k = numbers(1, B, T, H, K)
    operands = {
        "q": numbers(2, B, T, H, K), "k": k / np.sqrt((k * k).sum(3, keepdims=True)), "v": numbers(3, B, T, H, V),
        "beta": (numbers(4, B, T, H) + 1) * 0.5 * most, "g": gates(5, strength, B, T, H),
    }  # fmt: skip
    return {name: stored(value, "f32" if name in WIDE else dtype) for name, value in operands.items()}


class Delta(QueryScanTests, unittest.TestCase):
    name, operands = "scan.delta", ("q", "k", "v", "beta", "g")
    timed = operands
    steps, steps_backward = staticmethod(steps), staticmethod(steps_backward)
    forward, backward, case = staticmethod(forward), staticmethod(backward), staticmethod(case)

    def test_equal_keys_and_rates_up_to_two(self):
        """L is then as large as it can be: its powers grow to 1e18, the inverse does not."""
        for most, dtype in ((1.0, "f32"), (1.0, "bf16"), (2.0, "f32")):
            operands = case(dtype, 1, 64, 1, (16, 16), 0.0, most)
            operands["k"] = np.broadcast_to(operands["k"][:, :1], operands["k"].shape).copy()
            with self.subTest(most=most, dtype=dtype):
                self.compare(dtype, operands, self.tiles, f"beta to {most}, {dtype}", 2.0)

    def test_golden(self):
        tensors, metadata = golden("delta_scan")
        operands = {name: tensors[f"in/{name}"] for name in self.operands}
        self.compare_golden(tensors, operands, float(metadata["tolerance"]))

    def test_golden_without_gates(self):
        tensors, _ = golden("delta_net")
        operands = {name: tensors[f"in/{name}"] for name in ("q", "k", "v", "beta")}
        operands["g"] = np.zeros_like(operands["beta"])
        self.compare_golden(tensors, operands, 7e-6, "o")


if __name__ == "__main__":
    unittest.main()
