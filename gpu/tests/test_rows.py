"""Norms, rotary positions, the gated unit and sums over rows, against the CPU kernels."""

import unittest

import numpy as np

from gpu.tests.cases import KINDS, add_rows, assert_close, case, launch, tokens_by_channels, variant
from gpu.tests.harness import Array


def least(name: str, width: int, key: str, **wanted) -> dict:
    """The variant with the least tile that holds a width."""
    from gpu.tests.cases import specs

    fits = [v for v in specs()[name].variants if v[key] >= width and all(v[k] == w for k, w in wanted.items())]
    return min(fits, key=lambda v: v[key])


def heads_of(x: np.ndarray, kind: str, extra: int) -> Array:
    """[b, t, h, c] as [tokens, h · c], rows h · c + extra elements apart."""
    return tokens_by_channels(x.reshape(x.shape[0], x.shape[1], -1), kind, extra)


def norm(name: str, kind: str, gate_order: int, prefix: tuple[str, ...]) -> None:
    given = case(name)
    batch, time, heads, width = given["x"].shape
    rows, extra = batch * time * heads, 8
    x, gate, dy = (heads_of(given[key], kind, extra) for key in ("x", "gate", "dy"))
    gate = gate if gate_order else None
    weight = Array(given["weight"], kind)
    y, rstd = Array.empty((rows, width), kind), Array.empty((rows,), "f32")
    sizes = {"rows": rows, "heads": heads, "width": width}
    stride = heads * width + extra
    constants = least("rms_norm_forward", width, "BC", GATE=gate_order, dtype=kind)
    operands = {"x": x, "gate": gate, "weight": weight, "y": y, "rstd": rstd}
    args = {**operands, **sizes, "x_row": stride, "gate_row": stride, "eps": 1e-5}
    launch("rms_norm_forward", constants, args)
    assert_close(y, given[prefix[0]], f"{name} y {kind}", kind)
    assert_close(rstd, given[prefix[1]], f"{name} rstd {kind}")

    chunk = 32
    dx, dgate = Array.empty((rows, width), kind), Array.empty((rows, width), kind) if gate_order else None
    partial = Array.empty((-(-rows // chunk), width), "f32")
    operands = {"dy": dy, "x": x, "gate": gate, "weight": weight, "rstd": Array(given[prefix[1]].reshape(-1), "f32")}
    operands |= {"dx": dx, "dgate": dgate, "partial": partial}
    strides = {"dy_row": stride, "x_row": stride, "gate_row": stride, "chunk": chunk}
    constants = least("rms_norm_backward", width, "BC", GATE=gate_order, dtype=kind)
    launch("rms_norm_backward", constants, {**operands, **sizes, **strides})
    assert_close(dx, given[prefix[2]], f"{name} dx {kind}", kind, 1e-5)
    if gate_order:
        assert_close(dgate, given[prefix[3]], f"{name} dgate {kind}", kind, 1e-5)
    assert_close(add_rows(partial), given[prefix[-1]], f"{name} dweight {kind}", within=1e-5)


def l2_norm(name: str, kind: str) -> None:
    given = case(name)
    batch, time, heads, width = given["x"].shape
    rows, extra = batch * time * heads, 8
    stride = heads * width + extra
    x, dy = (heads_of(given[key], kind, extra) for key in ("x", "dy"))
    y, dx = Array.empty((rows, width), kind), Array.empty((rows, width), kind)
    rnorm = Array.empty((rows,), "f32")
    sizes = {"rows": rows, "heads": heads, "width": width}
    args = {"x": x, "y": y, "rnorm": rnorm, **sizes, "x_row": stride, "eps": 1e-6}
    launch("l2_norm_forward", least("l2_norm_forward", width, "BC", dtype=kind), args)
    assert_close(y, given["l2_y"], f"{name} y {kind}", kind)
    assert_close(rnorm, given["l2_rnorm"], f"{name} rnorm {kind}")
    args = {"dy": dy, "x": x, "rnorm": rnorm, "dx": dx, **sizes, "dy_row": stride, "x_row": stride}
    launch("l2_norm_backward", least("l2_norm_backward", width, "BC", dtype=kind), args)
    assert_close(dx, given["l2_dx"], f"{name} dx {kind}", kind, 1e-5)


def rope_table(half: int, dims: int, position: int, time: int) -> tuple[Array, Array]:
    """Cosines and sines [time, dims] as runtime/src/kernels/rope.rs spreads them."""
    pairs = dims // 2
    angles = (position + np.arange(time))[:, None] * 10_000.0 ** (-2.0 * np.arange(pairs) / dims)
    cosine, sine = np.cos(angles), np.sin(angles)
    if half:
        whole = (np.concatenate([cosine, cosine], 1), np.concatenate([-sine, sine], 1))
    else:
        whole = (np.repeat(cosine, 2, 1), np.stack([-sine, sine], 2).reshape(time, dims))
    return Array(whole[0], "f32"), Array(whole[1], "f32")


class Rows(unittest.TestCase):
    def test_rms_norms(self):
        names = [("y0", "rstd0", "dx0", "dweight0")]
        names += [tuple(f"gated{n}.{i}" for i in range(5)) for n in (1, 2)]
        for width in (20, 64, 300):
            for order, prefix in enumerate(names):
                for kind in KINDS:
                    with self.subTest(width=width, gate=order, dtype=kind):
                        norm(f"norm.{width}", kind, order, prefix)

    def test_l2_norms(self):
        for width in (20, 64):
            for kind in KINDS:
                with self.subTest(width=width, dtype=kind):
                    l2_norm(f"norm.{width}", kind)

    def test_rotary_positions(self):
        for n in range(3):
            given = case(f"rope.{n}")
            batch, time, heads, width = given["x"].shape
            dims, position = int(given["dims"][0]), int(given["position"][0])
            for half in (0, 1):
                cosine, sine = rope_table(half, dims, position, time)
                for back in (0, 1):
                    for kind in KINDS:
                        with self.subTest(case=n, half=half, back=back, dtype=kind):
                            x, y = heads_of(given["x"], kind, 8), Array.empty(given["x"].shape, kind)
                            rows = batch * time * heads
                            args = {"x": x, "cosine": cosine, "sine": sine, "y": y, "rows": rows, "heads": heads}
                            args |= {"width": width, "dims": dims, "time": time, "x_row": heads * width + 8}
                            args["sign"] = -1.0 if back else 1.0
                            launch("rope", least("rope", width, "BD", HALF=half, dtype=kind), args)
                            assert_close(y, given[f"y.{half}.{back}"], f"rope {n} {half} {back} {kind}", kind)

    def test_gated_unit(self):
        given = case("swiglu")
        width = given["y"].shape[-1]
        rows = given["y"].size // width
        for kind in KINDS:
            with self.subTest(dtype=kind):
                gate, up = tokens_by_channels(given["gate"], kind, 6), tokens_by_channels(given["up"], kind, 40)
                dy = tokens_by_channels(given["dy"], kind)
                strides = {"gate_row": width + 6, "up_row": width + 40}
                y, dgate, dup = (Array.empty((rows, width), kind) for _ in range(3))
                sizes = {"rows": rows, "width": width}
                chosen = {"dtype": kind, "BLOCK": 128}
                launch("swiglu_forward", chosen, {"gate": gate, "up": up, "y": y, **sizes, **strides})
                assert_close(y, given["y"], f"swiglu y {kind}", kind)
                operands = {"dy": dy, "gate": gate, "up": up, "dgate": dgate, "dup": dup}
                launch("swiglu_backward", chosen, {**operands, **sizes, "dy_row": width, **strides})
                assert_close(dgate, given["dgate"], f"swiglu dgate {kind}", kind)
                assert_close(dup, given["dup"], f"swiglu dup {kind}", kind)

    def test_sums_over_tokens(self):
        given = case("sums")
        rows, width = 100, 21
        for kind in KINDS:
            with self.subTest(dtype=kind):
                dy = tokens_by_channels(given["dy"], kind, 3)
                chunk = 33
                partial = Array.empty((-(-rows // chunk), width), "f32")
                args = {"x": dy, "out": partial, "rows": rows, "width": width, "chunk": chunk, "x_row": width + 3}
                launch("sum_rows", variant("sum_rows", dtype=kind), args)
                assert_close(add_rows(partial), given["out"], f"sums {kind}", within=1e-5)

    def test_gradient_of_a_table(self):
        """Repeated tokens, tokens that are missing, and rows of the table after the last."""
        given = case("embed")
        tokens = given["tokens"].reshape(-1)
        order = np.argsort(tokens, kind="stable")
        vocab, width = given["dtable"].shape
        for kind in KINDS:
            with self.subTest(dtype=kind):
                dtable = Array.empty((vocab, width), "f32")
                args = {"dy": tokens_by_channels(given["dy"], kind, 3), "ids": Array(tokens[order], "i64")}
                args |= {"order": Array(order, "i64"), "dtable": dtable, "tokens": tokens.size, "vocab": vocab}
                args |= {"width": width, "dy_row": width + 3}
                launch("embed_backward", variant("embed_backward", dtype=kind), args)
                assert_close(dtable, given["dtable"], f"embed {kind}")


if __name__ == "__main__":
    unittest.main()
