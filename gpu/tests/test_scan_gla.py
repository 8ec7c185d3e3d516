"""The GLA scan of gpu/kernels/scan_gla.py against its recurrence in f64, token by token, and against a golden case."""

import unittest

import numpy as np

# The harness first: it makes Triton interpret the kernels.
from gpu.tests.scan_cases import (
    TOLERANCE, Launcher, assert_close, check_gradients, gates, golden, numbers, pad, stored,
)  # fmt: skip

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


def launcher(dtype, operands, scale, tiles, start=None):
    B, T, H, K = operands["q"].shape
    V = operands["v"].shape[3]
    run = Launcher(
        scan_gla.SPECS, dtype, {"K": K, **tiles},
        {"B": B, "T": T, "H": H, "V": V, "scale": scale, "has_start": int(start is not None)},
    )  # fmt: skip
    run.put(**operands, start=start)
    C = tiles.get("CHUNK", 64)
    NT = -(-T // C)
    for name in ("scores", "dscores"):
        run.room(name, B, H, NT, C, C)
    for name in ("states", "gradients"):
        run.room(name, B, H, NT, K, V)
    for name in ("near_q", "near_k"):
        run.room(name, B, T, H, K)
    run.room("last", B, H, K, V)
    run.run("gla_scores")
    run.run("gla_states")
    return run


def forward(dtype, operands, scale, tiles, start=None):
    run = launcher(dtype, operands, scale, tiles, start)
    run.room("y", *operands["v"].shape)
    run.run("gla_output")
    return {"y": run.get("y"), "state": run.get("last")}


def backward(dtype, operands, scale, dy, tiles):
    run = launcher(dtype, operands, scale, tiles)
    run.put(dy=dy)
    for name, value in operands.items():
        run.room(f"d{name}", *value.shape)
    for kernel in ("state", "score", "value", "near", "key"):
        run.run(f"gla_{kernel}_gradients")
    return {name: run.get(f"d{name}") for name in operands}


def case(dtype, B, T, H, K, V, strength):
    """Operands as the kernels hold them."""
    operands = {
        "q": numbers(1, B, T, H, K), "k": numbers(2, B, T, H, K), "v": numbers(3, B, T, H, V),
        "g": gates(4, strength, B, T, H, K),
    }  # fmt: skip
    return {name: stored(value, dtype) for name, value in operands.items()}


WHOLE = {"CHUNK": 64, "BLOCK_K": 16, "BLOCK_V": 16}
CUT = {"CHUNK": 64, "BLOCK_K": 16, "BLOCK_V": 16}
SHORT = {"CHUNK": 32, "BLOCK_K": 32, "BLOCK_V": 32}


class Gla(unittest.TestCase):
    def compare(self, dtype, operands, tiles, what):
        B, _, H, K = operands["q"].shape
        start = stored(numbers(7, B, H, K, operands["v"].shape[3]), "f32")
        y, state = steps(**operands, scale=0.3, start=start)
        got = forward(dtype, operands, 0.3, tiles, start)
        assert_close(got, {"y": y, "state": state}, TOLERANCE[dtype], what)
        dy = stored(numbers(8, *y.shape), dtype)
        want = steps_backward(dy, **operands, scale=0.3)
        assert_close(backward(dtype, operands, 0.3, dy, tiles), want, TOLERANCE[dtype], what)

    def test_reference_gradients_are_those_of_finite_differences(self):
        operands = case("f32", 2, 9, 2, 3, 5, 0.3)
        dy = numbers(8, 2, 9, 2, 5)
        check_gradients(
            lambda **operands: steps(**operands, scale=0.3), operands, dy, steps_backward(dy, **operands, scale=0.3)
        )

    def test_any_length(self):
        for T in (1, 16, 17, 64, 65, 130):
            with self.subTest(T=T):
                self.compare("f32", case("f32", 1, T, 1, 16, 16, None), WHOLE, f"T = {T}")

    def test_tiles_and_types(self):
        for tiles in (CUT, SHORT):
            for dtype in ("f32", "bf16"):
                with self.subTest(tiles=tiles, dtype=dtype):
                    self.compare(dtype, case(dtype, 2, 70, 1, 32, 32, None), tiles, dtype)

    def test_gates_of_any_strength(self):
        for strength in (0.0, 1e-6, 1.0, 50.0, 1e4):
            for dtype in ("f32", "bf16"):
                with self.subTest(strength=strength, dtype=dtype):
                    self.compare(dtype, case(dtype, 1, 130, 1, 16, 16, strength), WHOLE, f"{strength}, {dtype}")

    def test_compiled_tiles(self):
        for dtype, K in (("bf16", 128), ("f32", 64)):
            self.compare(dtype, case(dtype, 1, 70, 1, K, K, None), {}, f"K = {K}, {dtype}")

    def test_two_pieces_are_one(self):
        operands = case("f32", 1, 100, 1, 16, 16, None)
        whole = forward("f32", operands, 0.3, WHOLE)
        for cut in (37, 64):
            first, second = (
                {name: value[:, part] for name, value in operands.items()}
                for part in (slice(0, cut), slice(cut, None))
            )
            one = forward("f32", first, 0.3, WHOLE)
            two = forward("f32", second, 0.3, WHOLE, one["state"])
            got = {"y": np.concatenate([one["y"], two["y"]], 1), "state": two["state"]}
            assert_close(got, whole, 1e-5, f"cut at {cut}")

    def test_golden(self):
        tensors, _ = golden("simple_gla")
        K, V = tensors["in/q"].shape[3], tensors["in/v"].shape[3]
        operands = {name: pad(tensors[f"in/{name}"], axis_3=16) for name in ("q", "k", "v")}
        operands["g"] = np.repeat(tensors["in/g"][..., None], 16, 3)
        got = forward("f32", operands, K**-0.5, WHOLE)
        want = {"y": tensors["out/o"], "state": tensors["state/S"]}
        assert_close({"y": got["y"][..., :V], "state": got["state"][..., :K, :V]}, want, 5.6e-6, "golden")
        got = backward("f32", operands, K**-0.5, pad(tensors["cot/o"], axis_3=16), WHOLE)
        want = {name: tensors[f"grad/{name}"] for name in operands}
        cut = {name: got[name][..., : want[name].shape[3]] for name in ("q", "k", "v")}
        assert_close({**cut, "g": got["g"].sum(3)}, want, 5.6e-6, "golden")


if __name__ == "__main__":
    unittest.main()
