"""Small functions that several kernels use, inlined where they are called."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def silu_slope(x):
    """The derivative of x · sigmoid(x)."""
    s = sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


@triton.jit
def inverse_root(x):
    """1 / sqrt(x), both rounded to the nearest."""
    return tl.div_rn(1.0, tl.sqrt_rn(x))
