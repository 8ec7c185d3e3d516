"""What the chunked scans share: matrix products, gates, triangles.

Gates are sums of logarithms, at most 0. A decay between two rows of a chunk is exp of a difference of two running sums,
and such a difference would cancel after one strong gate. So each gate is split in two parts: a multiple of 2^-10, whose
sums are exact in f32, and a remainder below 2^-10, whose sums are small. Then no strength of gate loses digits, and no
exponent is positive.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
# 2^-150 is 0 in f32. 64 gates of this strength are below 2^24 multiples of 2^-10, so their sum is exact.
STRONGEST = tl.constexpr(-150.0)


@triton.jit
def product(a, b, acc, TYPE: tl.constexpr):
    """acc + a b with operands of TYPE and sums in f32. f32 operands are split in three tf32 products."""
    a = a.to(TYPE)
    b = b.to(TYPE)
    if TYPE == tl.float32:
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    else:
        acc = tl.dot(a, b, acc)
    return acc


@triton.jit
def split_gates(g):
    """Gates in units of log 2: a multiple of 2^-10, and the rest. NaN stays NaN."""
    g = g * LOG2E
    g = tl.where(g < STRONGEST, STRONGEST, g)
    coarse = tl.floor(g * 1024.0) * 0.0009765625
    return coarse, g - coarse


@triton.jit
def scalar_decays(g, CHUNK: tl.constexpr):
    """From a chunk's gates [CHUNK]: M [CHUNK, CHUNK], the decay from row j to row i ≥ j, 0 above the diagonal; the
    decays from the chunk's start to each row and from each row to its end; and the whole chunk's."""
    coarse, fine = split_gates(g)
    above, below = tl.cumsum(coarse, 0), tl.cumsum(fine, 0)
    end_above, end_below = tl.sum(coarse, 0), tl.sum(fine, 0)
    row = tl.arange(0, CHUNK)
    sums = (above[:, None] - above[None, :]) + (below[:, None] - below[None, :])
    between = tl.exp2(tl.where(row[:, None] >= row[None, :], sums, float("-inf")))
    since_start = tl.exp2(above + below)
    to_end = tl.exp2((end_above - above) + (end_below - below))
    return between, since_start, to_end, tl.exp2(end_above + end_below)


@triton.jit
def end_decays(g):
    """The decays from each row to the chunk's end, and the whole chunk's."""
    coarse, fine = split_gates(g)
    above, below = tl.cumsum(coarse, 0), tl.cumsum(fine, 0)
    end_above, end_below = tl.sum(coarse, 0), tl.sum(fine, 0)
    to_end = tl.exp2((end_above - above) + (end_below - below))
    return to_end, tl.exp2(end_above + end_below)


@triton.jit
def start_decays(g):
    """The decays from the chunk's start to each row, and the whole chunk's."""
    coarse, fine = split_gates(g)
    since_start = tl.exp2(tl.cumsum(coarse, 0) + tl.cumsum(fine, 0))
    return since_start, tl.exp2(tl.sum(coarse, 0) + tl.sum(fine, 0))


@triton.jit
def gate_gradient(pairs, from_start, until_end, whole, CHUNK: tl.constexpr):
    """A gate's gradient: the sum of the terms of all pairs on either side of it, none of them by subtraction.

    pairs [i, j]: the term of rows j < i, 0 elsewhere. from_start [i]: from the state before the chunk to row i.
    until_end [j]: from row j to the state after. whole: from the state before to the state after."""
    row = tl.arange(0, CHUNK)
    crossing = tl.cumsum(pairs, 0, reverse=True) + until_end[None, :]
    crossing = tl.where(row[None, :] < row[:, None], crossing, 0.0)
    return tl.sum(crossing, 1) + tl.cumsum(from_start, 0, reverse=True) + whole
