"""The delta rule of gpu/kernels/scan_delta.py against its recurrence in f64, token by token, and against the golden case."""

import unittest

import numpy as np

# The harness first: it makes Triton interpret the kernels.
from gpu.tests.scan_cases import (
    TOLERANCE, Launcher, assert_close, check_gradients, gates, golden, numbers, pad, stored,
)  # fmt: skip

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


def launcher(dtype, operands, scale, tiles, start=None):
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


def forward(dtype, operands, scale, tiles, start=None):
    run = launcher(dtype, operands, scale, tiles, start)
    run.room("y", *operands["v"].shape)
    run.run("delta_output")
    return {"y": run.get("y"), "state": run.get("last")}


def backward(dtype, operands, scale, dy, tiles):
    run = launcher(dtype, operands, scale, tiles)
    run.put(dy=dy)
    for name, value in operands.items():
        run.room(f"d{name}", *value.shape)
    run.run("delta_state_gradients")
    run.run("delta_rows_back")
    for kernel in ("pair", "gate", "key"):
        run.run(f"delta_{kernel}_gradients")
    return {name: run.get(f"d{name}") for name in operands}


def case(dtype, B, T, H, K, V, strength, most=1.0):
    """Operands as the kernels hold them; keys of length 1, beta in (0, most)."""
    k = numbers(1, B, T, H, K)
    operands = {
        "q": numbers(2, B, T, H, K), "k": k / np.sqrt((k * k).sum(3, keepdims=True)), "v": numbers(3, B, T, H, V),
        "beta": (numbers(4, B, T, H) + 1) * 0.5 * most, "g": gates(5, strength, B, T, H),
    }  # fmt: skip
    return {name: stored(value, "f32" if name in WIDE else dtype) for name, value in operands.items()}


WHOLE = {"CHUNK": 64, "BLOCK_K": 16, "BLOCK_V": 16}
CUT = {"CHUNK": 64, "BLOCK_K": 16, "BLOCK_V": 16}
SHORT = {"CHUNK": 32, "BLOCK_K": 32, "BLOCK_V": 32}


class Delta(unittest.TestCase):
    def compare(self, dtype, operands, tiles, what, times=1.0):
        B, _, H, K = operands["q"].shape
        start = stored(numbers(7, B, H, K, operands["v"].shape[3]), "f32")
        y, state = steps(**operands, scale=0.3, start=start)
        got = forward(dtype, operands, 0.3, tiles, start)
        assert_close(got, {"y": y, "state": state}, times * TOLERANCE[dtype], what)
        dy = stored(numbers(8, *y.shape), dtype)
        want = steps_backward(dy, **operands, scale=0.3)
        assert_close(backward(dtype, operands, 0.3, dy, tiles), want, times * TOLERANCE[dtype], what)

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

    def test_equal_keys_and_rates_up_to_two(self):
        """L is then as large as it can be: its powers grow to 1e18, the inverse does not."""
        for most, dtype in ((1.0, "f32"), (1.0, "bf16"), (2.0, "f32")):
            operands = case(dtype, 1, 64, 1, 16, 16, 0.0, most)
            operands["k"] = np.broadcast_to(operands["k"][:, :1], operands["k"].shape).copy()
            with self.subTest(most=most, dtype=dtype):
                self.compare(dtype, operands, WHOLE, f"beta to {most}, {dtype}", 2.0)

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
        tensors, metadata = golden("delta_scan")
        K, V = tensors["in/q"].shape[3], tensors["in/v"].shape[3]
        operands = {name: tensors[f"in/{name}"] for name in ("q", "k", "v", "beta", "g")}
        operands = {name: pad(value, axis_3=16) if value.ndim == 4 else value for name, value in operands.items()}
        got = forward("f32", operands, K**-0.5, WHOLE)
        tolerance = float(metadata["tolerance"])
        want = {"y": tensors["out/y"], "state": tensors["state/S"]}
        assert_close({"y": got["y"][..., :V], "state": got["state"][..., :K, :V]}, want, tolerance, "golden")
        dy = pad(tensors["cot/y"], axis_3=16)
        got = backward("f32", operands, K**-0.5, dy, WHOLE)
        want = {name: tensors[f"grad/{name}"] for name in operands}
        cut = {name: value[tuple(slice(n) for n in want[name].shape)] for name, value in got.items()}
        assert_close(cut, want, tolerance, "golden")

    def test_golden_without_gates(self):
        tensors, _ = golden("delta_net")
        K, V = tensors["in/q"].shape[3], tensors["in/v"].shape[3]
        operands = {name: pad(tensors[f"in/{name}"], axis_3=16) for name in ("q", "k", "v")}
        operands |= {"beta": tensors["in/beta"], "g": np.zeros_like(tensors["in/beta"])}
        got = forward("f32", operands, K**-0.5, WHOLE)
        want = {"y": tensors["out/o"], "state": tensors["state/S"]}
        assert_close({"y": got["y"][..., :V], "state": got["state"][..., :K, :V]}, want, 7e-6, "golden")
        got = backward("f32", operands, K**-0.5, pad(tensors["cot/o"], axis_3=16), WHOLE)
        want = {name: tensors[f"grad/{name}"] for name in ("q", "k", "v", "beta")}
        cut = {name: got[name][tuple(slice(n) for n in value.shape)] for name, value in want.items()}
        assert_close(cut, want, 7e-6, "golden")


if __name__ == "__main__":
    unittest.main()
