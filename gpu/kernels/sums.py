"""Sums over rows in a fixed order, without atomics: second halves of other kernels, SumTokens, EmbedGrad."""

import triton
import triton.language as tl

from gpu.registry import Spec, with_dtypes


@triton.jit
def sum_rows(x, out, rows, width, chunk, x_row, BR: tl.constexpr, BC: tl.constexpr):
    """out [cdiv(rows, chunk), width] f32: row i sums the rows i · chunk to (i + 1) · chunk of x [rows, width].

    Lane r of BR adds the rows r, r + BR, … of its chunk in order; then the lanes are added as a tree. One launch with
    chunk = rows gives the sum of all.
    """
    blocks = tl.cdiv(width, BC)
    part = tl.program_id(0) // blocks
    c = (tl.program_id(0) % blocks) * BC + tl.arange(0, BC)
    last = tl.minimum(rows, (part + 1) * chunk)
    total = tl.zeros([BR, BC], tl.float32)
    for first in range(part * chunk, last, BR):
        r = first + tl.arange(0, BR)
        inside = (r < last)[:, None] & (c < width)[None, :]
        at = r[:, None].to(tl.int64) * x_row + c[None, :]
        total += tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + part.to(tl.int64) * width + c, tl.sum(total, 0), mask=c < width)


@triton.jit
def lower_bound(sorted_ids, count, wanted):
    """The number of ids below `wanted`."""
    low = wanted * 0
    high = low + count
    while low < high:
        middle = (low + high) // 2
        below = tl.load(sorted_ids + middle) < wanted
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
    return low


@triton.jit
def embed_backward(
    dy, ids, order, dtable, tokens, vocab, width, dy_row, BR: tl.constexpr, BC: tl.constexpr
):
    """dtable [vocab, width] f32: row i sums the rows of dy [tokens, width] where the token is i; zeros elsewhere.

    ids [tokens] are the tokens sorted, order [tokens] the place of each in dy, from a stable sort. So the rows of one
    token are added in their order: lane r of BR adds every BR-th of them, then the lanes are added as a tree.
    """
    blocks = tl.cdiv(width, BC)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    c = (tl.program_id(0) % blocks) * BC + tl.arange(0, BC)
    first = lower_bound(ids, tokens, row)
    last = lower_bound(ids, tokens, row + 1)
    total = tl.zeros([BR, BC], tl.float32)
    for start in range(first, last, BR):
        k = start + tl.arange(0, BR)
        place = tl.load(order + k, mask=k < last, other=0)
        inside = (k < last)[:, None] & (c < width)[None, :]
        at = place[:, None] * dy_row + c[None, :]
        total += tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(dtable + row * width + c, tl.sum(total, 0), mask=c < width)


SPECS = [
    Spec(
        fn=sum_rows,
        params={"x": "*T", "out": "*f32", "rows": "i32", "width": "i32", "chunk": "i32", "x_row": "i64"},
        variants=with_dtypes({"BR": 16, "BC": 64}),
        grid="cdiv(rows, chunk) * cdiv(width, BC)",
        divisible=("width", "x_row"),
    ),
    Spec(
        fn=embed_backward,
        params={
            "dy": "*T", "ids": "*i64", "order": "*i64", "dtable": "*f32", "tokens": "i32", "vocab": "i32",
            "width": "i32", "dy_row": "i64",
        },
        variants=with_dtypes({"BR": 8, "BC": 128}),
        grid="vocab * cdiv(width, BC)",
        divisible=("width", "dy_row"),
        scalars=("ids",),
    ),
]  # fmt: skip
