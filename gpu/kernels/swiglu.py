"""The gated unit of an MLP: y = silu(gate) ⊙ up, and its gradients (plan kernels SwiGlu, SwiGluGrad)."""

import triton
import triton.language as tl

from gpu.kernels.common import sigmoid
from gpu.registry import Spec, with_dtypes


@triton.jit
def swiglu_forward(gate, up, y, rows, width, gate_row, up_row, BLOCK: tl.constexpr):
    """y [rows, width] = gate · sigmoid(gate) · up. Rows of the operands are gate_row and up_row elements apart."""
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    g = tl.load(gate + row * gate_row + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_row + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * width + at, (g * sigmoid(g) * u).to(y.dtype.element_ty), mask=inside)


@triton.jit
def swiglu_backward(
    dy, gate, up, dgate, dup, rows, width, dy_row, gate_row, up_row, BLOCK: tl.constexpr
):
    """dgate = dy · up · s (1 + gate (1 − s)) and dup = dy · gate · s, with s = sigmoid(gate); both [rows, width]."""
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    d = tl.load(dy + row * dy_row + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gate + row * gate_row + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_row + at, mask=inside, other=0.0).to(tl.float32)
    s = sigmoid(g)
    dg = d * u * (s * (1.0 + g * (1.0 - s)))
    tl.store(dgate + row * width + at, dg.to(dgate.dtype.element_ty), mask=inside)
    tl.store(dup + row * width + at, (d * (g * s)).to(dup.dtype.element_ty), mask=inside)


SPECS = [
    Spec(
        fn=swiglu_forward,
        params={
            "gate": "*T", "up": "*T", "y": "*T", "rows": "i32", "width": "i32", "gate_row": "i64", "up_row": "i64",
        },
        variants=with_dtypes({"BLOCK": 1024}),
        grid="rows * cdiv(width, BLOCK)",
        divisible=("width", "gate_row", "up_row"),
    ),
    Spec(
        fn=swiglu_backward,
        params={
            "dy": "*T", "gate": "*T", "up": "*T", "dgate": "*T", "dup": "*T", "rows": "i32", "width": "i32",
            "dy_row": "i64", "gate_row": "i64", "up_row": "i64",
        },
        variants=with_dtypes({"BLOCK": 1024}),
        grid="rows * cdiv(width, BLOCK)",
        divisible=("width", "dy_row", "gate_row", "up_row"),
    ),
]  # fmt: skip
