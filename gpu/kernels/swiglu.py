"""The gated unit of an MLP: y = silu(gate) ⊙ up, and its gradients (plan kernels SwiGlu, SwiGluGrad)."""

import triton
import triton.language as tl

from gpu.registry import Spec, with_dtypes


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def swiglu_forward(gate, up, y, rows, width, gate_row, up_row, y_row, BLOCK: tl.constexpr):
    """y [rows, width] = gate · sigmoid(gate) · up. Grid: rows * cdiv(width, BLOCK)."""
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    g = tl.load(gate + row * gate_row + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_row + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * y_row + at, (g * sigmoid(g) * u).to(y.dtype.element_ty), mask=inside)


SPECS = [
    Spec(
        fn=swiglu_forward,
        params={
            "gate": "*T", "up": "*T", "y": "*T", "rows": "i32", "width": "i32",
            "gate_row": "i64", "up_row": "i64", "y_row": "i64",
        },
        variants=with_dtypes({"BLOCK": 1024}),
        grid="rows * cdiv(width, BLOCK)",
        divisible=("width", "gate_row", "up_row", "y_row"),
    ),
]  # fmt: skip
