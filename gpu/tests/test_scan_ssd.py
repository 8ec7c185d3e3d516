"""The SSD scan of gpu/kernels/scan_ssd.py against its recurrence in f64, token by token, and against the golden case."""

import unittest

import numpy as np

# The harness first: it makes Triton interpret the kernels.
from gpu.tests.scan_cases import (
    TOLERANCE, Launcher, assert_close, check_gradients, gates, golden, numbers, pad, stored,
)  # fmt: skip

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


def case(dtype, B, T, H, G, P, N, strength=0.5):
    """Operands as the kernels hold them. With a = −1, gates are −dt."""
    dt = np.abs(numbers(1, B, T, H)) if strength == "random" else -gates(1, strength, B, T, H)
    a = -np.exp(numbers(2, H)) if strength == "random" else -np.ones(H)
    operands = {
        "x": numbers(3, B, T, H, P), "dt": dt, "a": a, "b": numbers(4, B, T, G, N), "c": numbers(5, B, T, G, N),
        "d": numbers(6, H),
    }  # fmt: skip
    return {name: stored(value, "f32" if name in WIDE else dtype) for name, value in operands.items()}


SMALL = {"CHUNK": 64, "BLOCK_P": 16, "BLOCK_N": 16}
SHORT = {"CHUNK": 16, "BLOCK_P": 16, "BLOCK_N": 32}


class Ssd(unittest.TestCase):
    def compare(self, dtype, operands, tiles, what, times=1.0):
        B, _, H, P = operands["x"].shape
        N = operands["b"].shape[3]
        start = stored(numbers(7, B, H, P, N), "f32")
        y, state = steps(**operands, start=start)
        got = forward(dtype, operands, tiles, start)
        assert_close(got, {"y": y, "state": state}, times * TOLERANCE[dtype], what)
        dy = stored(numbers(8, *y.shape), dtype)
        want = steps_backward(dy, **operands)
        assert_close(backward(dtype, operands, dy, tiles), want, times * TOLERANCE[dtype], what)

    def test_reference_gradients_are_those_of_finite_differences(self):
        operands = case("f32", 2, 9, 4, 2, 3, 5, "random")
        dy = numbers(8, 2, 9, 4, 3)
        check_gradients(steps, operands, dy, steps_backward(dy, **operands))

    def test_any_length(self):
        for T in (1, 16, 17, 64, 65, 130):
            with self.subTest(T=T):
                self.compare("f32", case("f32", 1, T, 1, 1, 16, 16, "random"), SMALL, f"T = {T}")

    def test_groups_and_tiles(self):
        for tiles, G in ((SMALL, 1), (SMALL, 2), (SHORT, 4)):
            for dtype in ("f32", "bf16"):
                with self.subTest(tiles=tiles, groups=G, dtype=dtype):
                    self.compare(dtype, case(dtype, 2, 70, 4, G, 16, 32, "random"), tiles, f"{G} groups, {dtype}")

    def test_gates_of_any_strength(self):
        for strength in (None, 0.0, 1e-6, 1.0, 50.0, 1e4):
            for dtype in ("f32", "bf16"):
                with self.subTest(strength=strength, dtype=dtype):
                    self.compare(dtype, case(dtype, 1, 130, 1, 1, 16, 16, strength), SMALL, f"{strength}, {dtype}")

    def test_compiled_tiles(self):
        for dtype, N in (("bf16", 128), ("f32", 64)):
            self.compare(dtype, case(dtype, 1, 70, 1, 1, N, N, "random"), {}, f"N = {N}, {dtype}")

    def test_two_pieces_are_one(self):
        operands = case("f32", 1, 100, 1, 1, 16, 16, "random")
        whole = forward("f32", operands, SMALL)
        for cut in (37, 64):
            first, second = (
                {name: value if name in ("a", "d") else value[:, part] for name, value in operands.items()}
                for part in (slice(0, cut), slice(cut, None))
            )
            one = forward("f32", first, SMALL)
            two = forward("f32", second, SMALL, one["state"])
            got = {"y": np.concatenate([one["y"], two["y"]], 1), "state": two["state"]}
            assert_close(got, whole, 1e-5, f"cut at {cut}")

    def test_golden(self):
        tensors, metadata = golden("ssd_scan")
        wide = {"x": {"axis_3": 16}, "b": {"axis_3": 16}, "c": {"axis_3": 16}}
        P, N = tensors["in/x"].shape[3], tensors["in/b"].shape[3]
        operands = {name: pad(tensors[f"in/{name}"], **wide.get(name, {})) for name in ("x", "dt", "a", "b", "c", "d")}
        got = forward("f32", operands, SMALL)
        tolerance = float(metadata["tolerance"])
        want = {"y": tensors["out/y"], "state": tensors["state/S"]}
        assert_close({"y": got["y"][..., :P], "state": got["state"][..., :P, :N]}, want, tolerance, "golden")
        dy = pad(tensors["cot/y"], axis_3=16)
        got = backward("f32", operands, dy, SMALL)
        want = {name: tensors[f"grad/{name}"] for name in operands}
        cut = {name: value[tuple(slice(n) for n in want[name].shape)] for name, value in got.items()}
        assert_close(cut, want, tolerance, "golden")


if __name__ == "__main__":
    unittest.main()
