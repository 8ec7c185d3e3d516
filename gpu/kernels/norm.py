"""RMS norms with and without a silu gate, and L2 norms (plan kernels RmsNorm, GatedRmsNorm, L2Norm and gradients).

Rows are cut out of tensors: row i is head i % heads of token i / heads, and begins at token · x_row + head · width. So a
part of a packed projection needs no copy. Results are dense, [rows, width].
"""

import triton
import triton.language as tl

from gpu.kernels.common import inverse_root, sigmoid, silu_slope
from gpu.registry import Spec, with_dtypes

# GATE
NONE, BEFORE, AFTER = 0, 1, 2


@triton.jit
def load_rows(x, r, c, rows, heads, width, x_row):
    """[BR, BC] f32, zeros outside."""
    inside = (r < rows)[:, None] & (c < width)[None, :]
    start = (r // heads).to(tl.int64) * x_row + (r % heads) * width
    return tl.load(x + start[:, None] + c[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store_rows(y, r, c, rows, width, values):
    inside = (r < rows)[:, None] & (c < width)[None, :]
    at = r[:, None].to(tl.int64) * width + c[None, :]
    tl.store(y + at, values.to(y.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm_forward(
    x, gate, weight, y, rstd, rows, heads, width, x_row, gate_row, eps,
    GATE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = weight · x · rstd and rstd [rows] f32 = 1 / sqrt(mean x² + eps). GATE 1: x · silu(gate) instead of x. GATE 2:
    y · silu(gate) instead of y. Without a gate it is a null pointer."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    u = load_rows(x, r, c, rows, heads, width, x_row)
    w = tl.load(weight + c, mask=c < width, other=0.0).to(tl.float32)
    if GATE != 0:
        g = load_rows(gate, r, c, rows, heads, width, gate_row)
        s = g * sigmoid(g)
    if GATE == 1:
        u = s * u
    root = inverse_root(tl.sum(u * u, 1) / width + eps)
    n = u * root[:, None] * w[None, :]
    if GATE == 2:
        n = s * n
    store_rows(y, r, c, rows, width, n)
    tl.store(rstd + r, root, mask=r < rows)


@triton.jit
def rms_norm_backward(
    dy, x, gate, weight, rstd, dx, dgate, partial, rows, heads, width, dy_row, x_row, gate_row, chunk,
    GATE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx and dgate [rows, width]; partial [cdiv(rows, chunk), width] f32, which sum_rows adds to dweight.

    Of the normed operand u: g = d(weight · u · rstd) · weight, du = rstd (g − n mean(g · n)) with n = u · rstd. Lane r of
    BR adds the rows r, r + BR, … of its chunk in order; then the lanes are added as a tree. chunk is a multiple of BR.
    """
    c = tl.arange(0, BC)
    w = tl.load(weight + c, mask=c < width, other=0.0).to(tl.float32)
    first = tl.program_id(0) * chunk
    total = tl.zeros([BR, BC], tl.float32)
    for start in range(first, tl.minimum(rows, first + chunk), BR):
        r = start + tl.arange(0, BR)
        d = load_rows(dy, r, c, rows, heads, width, dy_row)
        v = load_rows(x, r, c, rows, heads, width, x_row)
        root = tl.load(rstd + r, mask=r < rows, other=0.0)[:, None]
        u, dn = v, d
        if GATE != 0:
            g = load_rows(gate, r, c, rows, heads, width, gate_row)
            s = g * sigmoid(g)
            if GATE == 1:
                u = s * v
            if GATE == 2:
                dn = d * s
        into = dn * w[None, :]
        along = tl.sum(into * u, 1)[:, None] * root * root / width
        du = root * (into - along * u)
        total += dn * root * u
        if GATE == 1:
            store_rows(dgate, r, c, rows, width, du * v * silu_slope(g))
            du = du * s
        if GATE == 2:
            n = v * root * w[None, :]
            store_rows(dgate, r, c, rows, width, d * n * silu_slope(g))
        store_rows(dx, r, c, rows, width, du)
    tl.store(partial + tl.program_id(0).to(tl.int64) * width + c, tl.sum(total, 0), mask=c < width)


@triton.jit
def l2_norm_forward(
    x, y, rnorm, rows, heads, width, x_row, eps, BR: tl.constexpr, BC: tl.constexpr
):
    """y = x · rnorm and rnorm [rows] f32 = 1 / sqrt(Σ x² + eps)."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    v = load_rows(x, r, c, rows, heads, width, x_row)
    root = inverse_root(tl.sum(v * v, 1) + eps)
    store_rows(y, r, c, rows, width, v * root[:, None])
    tl.store(rnorm + r, root, mask=r < rows)


@triton.jit
def l2_norm_backward(
    dy, x, rnorm, dx, rows, heads, width, dy_row, x_row, BR: tl.constexpr, BC: tl.constexpr
):
    """dx = rnorm (dy − y Σ(dy · y)), y = x · rnorm computed again: a rounded y is not orthogonal to dx."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    d = load_rows(dy, r, c, rows, heads, width, dy_row)
    root = tl.load(rnorm + r, mask=r < rows, other=0.0)[:, None]
    y = load_rows(x, r, c, rows, heads, width, x_row) * root
    along = tl.sum(d * y, 1)[:, None]
    store_rows(dx, r, c, rows, width, root * (d - along * y))


# BC is the least of these that is at least the width; a program has about 2,048 elements, and 16 of a thread. A gate
# before the norm (Mamba2) is over all heads at once, one after it over each head.
WIDTHS = {
    NONE: (64, 128, 256, 1024, 2048, 4096, 8192),
    BEFORE: (256, 1024, 2048, 4096, 8192),
    AFTER: (64, 128, 256, 1024),
}
HEAD_WIDTHS = (64, 128, 256)


def tile(width: int) -> dict:
    return {"BR": max(1, 2048 // width), "BC": width}


def warps(constants: dict, _aligned: bool) -> int:
    return max(4, constants["BR"] * constants["BC"] // 512)


SPECS = [
    Spec(
        fn=rms_norm_forward,
        params={
            "x": "*T", "gate": "*T", "weight": "*T", "y": "*T", "rstd": "*f32", "rows": "i32", "heads": "i32",
            "width": "i32", "x_row": "i64", "gate_row": "i64", "eps": "f32",
        },
        variants=with_dtypes(*({"GATE": gate, **tile(w)} for gate in WIDTHS for w in WIDTHS[gate])),
        grid="cdiv(rows, BR)",
        divisible=("width", "x_row", "gate_row"),
        warps=warps,
    ),
    Spec(
        fn=rms_norm_backward,
        params={
            "dy": "*T", "x": "*T", "gate": "*T", "weight": "*T", "rstd": "*f32", "dx": "*T", "dgate": "*T",
            "partial": "*f32", "rows": "i32", "heads": "i32", "width": "i32", "dy_row": "i64", "x_row": "i64",
            "gate_row": "i64", "chunk": "i32",
        },
        # A gate before a norm over 8,192 would need more registers than a thread has.
        variants=with_dtypes(*(
            {"GATE": gate, **tile(w)} for gate in WIDTHS for w in WIDTHS[gate] if (gate, w) != (BEFORE, 8192)
        )),
        grid="cdiv(rows, chunk)",
        divisible=("width", "dy_row", "x_row", "gate_row"),
        warps=warps,
    ),
    Spec(
        fn=l2_norm_forward,
        params={
            "x": "*T", "y": "*T", "rnorm": "*f32", "rows": "i32", "heads": "i32", "width": "i32", "x_row": "i64",
            "eps": "f32",
        },
        variants=with_dtypes(*(tile(w) for w in HEAD_WIDTHS)),
        grid="cdiv(rows, BR)",
        divisible=("width", "x_row"),
    ),
    Spec(
        fn=l2_norm_backward,
        params={
            "dy": "*T", "x": "*T", "rnorm": "*f32", "dx": "*T", "rows": "i32", "heads": "i32", "width": "i32",
            "dy_row": "i64", "x_row": "i64",
        },
        variants=with_dtypes(*(tile(w) for w in HEAD_WIDTHS)),
        grid="cdiv(rows, BR)",
        divisible=("width", "dy_row", "x_row"),
    ),
]  # fmt: skip
