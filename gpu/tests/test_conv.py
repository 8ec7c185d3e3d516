"""Canon layers, short convolutions, and the gated unit after one, against the CPU kernels."""

import unittest

from gpu.tests.cases import KINDS, add_rows, assert_close, case, launch, tokens_by_channels, variant
from gpu.tests.harness import Array


def constants_of(name: str, kernel: int, **wanted) -> dict:
    """A compiled variant, with another number of taps if the case has one."""
    return {**variant(name, **wanted), "K": kernel}


def convolve(name: str, kind: str) -> None:
    given = case(name)
    batch, time, _ = given["x0"].shape
    total, kernel = given["weight"].shape
    parts = [given[f"x{n}"] for n in range(9) if f"x{n}" in given]
    weight = Array(given["weight"], kind)
    bias = Array(given["bias"], kind) if "bias" in given else None
    past = Array(given["past"], kind) if "past" in given else None
    flags = {"residual": int(given["residual"][0]), "has_bias": int(bias is not None)}
    chosen = {"dtype": kind, "SILU": int(given["silu"][0])}
    rows = batch * -(-time // 256)
    partial_weight = Array.empty((rows, total, kernel), "f32")
    partial_bias = Array.empty((rows, total), "f32") if bias else None
    first = 0
    for n, x in enumerate(parts):
        channels, extra = x.shape[2], 8 * (n + 1)
        sizes = {"batch": batch, "time": time, "channels": channels, "first": first, "total": total}
        x_in, x_row = tokens_by_channels(x, kind, extra), channels + extra
        x_sizes = {"x_batch": time * x_row, "x_row": x_row}
        y = Array.empty(x.shape, kind)
        operands = {"x": x_in, "weight": weight, "bias": bias, "past": past, "y": y}
        constants = constants_of("causal_conv_forward", kernel, STATE=int(past is not None), **chosen)
        launch("causal_conv_forward", constants, {**operands, **sizes, **x_sizes, **flags})
        assert_close(y, given[f"y{n}"], f"{name} y{n} {kind}", kind)
        if past is None:
            dy, dx = tokens_by_channels(given[f"dy{n}"], kind), Array.empty(x.shape, kind)
            operands = {"dy": dy, "x": x_in, "weight": weight, "bias": bias, "dx": dx}
            operands |= {"partial_weight": partial_weight, "partial_bias": partial_bias}
            dy_sizes = {"dy_batch": time * channels, "dy_row": channels}
            constants = constants_of("causal_conv_backward", kernel, **chosen)
            launch("causal_conv_backward", constants, {**operands, **sizes, **dy_sizes, **x_sizes, **flags})
            assert_close(dx, given[f"dx{n}"], f"{name} dx{n} {kind}", kind)
        first += channels
    if past is None:
        assert_close(add_rows(partial_weight), given["dweight"], f"{name} dweight {kind}", within=1e-5)
        if bias:
            assert_close(add_rows(partial_bias), given["dbias"], f"{name} dbias {kind}", within=1e-5)


def gated(name: str, kind: str) -> None:
    given = case(name)
    batch, time, channels = given["gate"].shape
    total, kernel = given["weight"].shape
    gate, up = tokens_by_channels(given["gate"], kind, 24), tokens_by_channels(given["up"], kind)
    weight = Array(given["weight"], kind)
    bias = Array(given["bias"], kind) if "bias" in given else None
    past = Array(given["past"], kind) if "past" in given else None
    sizes = {"batch": batch, "time": time, "channels": channels}
    strides = {"gate_batch": time * (channels + 24), "gate_row": channels + 24}
    strides |= {"up_batch": time * channels, "up_row": channels}
    flags = {"residual": int(given["residual"][0]), "has_bias": int(bias is not None)}
    y = Array.empty(given["y"].shape, kind)
    operands = {"gate": gate, "up": up, "weight": weight, "bias": bias, "past": past, "y": y}
    constants = constants_of("conv_swiglu_forward", kernel, dtype=kind, STATE=int(past is not None))
    launch("conv_swiglu_forward", constants, {**operands, **sizes, **strides, **flags})
    assert_close(y, given["y"], f"{name} y {kind}", kind)
    if past is not None:
        return
    rows = batch * -(-time // 256)
    dy, dgate, dup = Array(given["dy"], kind), *(Array.empty(given["y"].shape, kind) for _ in range(2))
    partial_weight = Array.empty((rows, total, kernel), "f32")
    partial_bias = Array.empty((rows, total), "f32") if bias else None
    operands = {"dy": dy, "gate": gate, "up": up, "weight": weight, "bias": bias, "dgate": dgate, "dup": dup}
    operands |= {"partial_weight": partial_weight, "partial_bias": partial_bias}
    dy_strides = {"dy_batch": time * channels, "dy_row": channels}
    constants = constants_of("conv_swiglu_backward", kernel, dtype=kind)
    launch("conv_swiglu_backward", constants, {**operands, **sizes, **dy_strides, **strides, **flags})
    assert_close(dgate, given["dgate"], f"{name} dgate {kind}", kind)
    assert_close(dup, given["dup"], f"{name} dup {kind}", kind)
    assert_close(add_rows(partial_weight), given["dweight"], f"{name} dweight {kind}", within=1e-5)
    if bias:
        assert_close(add_rows(partial_bias), given["dbias"], f"{name} dbias {kind}", within=1e-5)


class Convolutions(unittest.TestCase):
    def test_convolutions(self):
        """Canon in two parts, a short convolution over two chunks, three taps, a piece and a token of a sequence."""
        for name in ("conv.canon", "conv.short", "conv.silu_residual", "conv.piece", "conv.token"):
            for kind in KINDS:
                with self.subTest(case=name, dtype=kind):
                    convolve(name, kind)

    def test_a_gated_unit_after_a_convolution(self):
        for name in ("unit.canon", "unit.bias", "unit.piece"):
            for kind in KINDS:
                with self.subTest(case=name, dtype=kind):
                    gated(name, kind)


if __name__ == "__main__":
    unittest.main()
