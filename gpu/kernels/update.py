"""The end of a step: squared norm, clipping coefficient, AdamW (plan kernels GradNorm, Clip, AdamW)."""

import triton
import triton.language as tl

from gpu.registry import Spec

# Elements of a block of the norm; ranks own whole blocks (scale::shard::BLOCK).
CHUNK = 16384


@triton.jit
def square_sums(g, sums, count, first, CHUNK: tl.constexpr, LANES: tl.constexpr):
    """sums[first + i] f64 = Σ g² over the elements i · CHUNK to (i + 1) · CHUNK of g [count] f32.

    Squares are exact in f64. Lane l adds the elements l, l + LANES, … in order; then the lanes are added as a tree.
    """
    block = tl.program_id(0).to(tl.int64)
    total = tl.zeros([LANES], tl.float64)
    for start in range(0, CHUNK, LANES):
        at = block * CHUNK + start + tl.arange(0, LANES)
        wide = tl.load(g + at, mask=at < count, other=0.0).to(tl.float64)
        total += wide * wide
    tl.store(sums + first + block, tl.sum(total, 0))


@triton.jit
def clip_coefficient(sums, norm, coefficient, blocks, most, LANES: tl.constexpr):
    """norm [] f64 = sqrt(Σ sums), coefficient [] f64 = min(1, most / (norm + 1e-6)), of sums [blocks] f64.

    Without clipping, most is infinity. One program: lane l adds the blocks l, l + LANES, … in order; then the lanes are
    added as a tree. So the result depends on the blocks only, not on the ranks that made them.
    """
    total = tl.zeros([LANES], tl.float64)
    for start in range(0, blocks, LANES):
        at = start + tl.arange(0, LANES)
        total += tl.load(sums + at, mask=at < blocks, other=0.0)
    root = tl.sqrt(tl.sum(total, 0))
    share = most / (root + 1e-6)
    tl.store(norm, root)
    # A norm that is not a number stays one.
    tl.store(coefficient, tl.where(share >= 1.0, 1.0, share))


@triton.jit
def adamw(
    p, g, m, v, copy, coefficient, count, keep, beta1, rest1, beta2, rest2, root, eps, rate,
    COPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """p, m, v [count] f32 in place; with COPY also copy [count] bf16 = p, rounded to the nearest.

    g ← coefficient · g; m ← beta1 m + rest1 g; v ← beta2 v + rest2 g²; p ← keep p − rate (m / (root sqrt(v) + eps)).
    The caller computes in f64 and rounds once: keep = 1 − lr · decay, rest = 1 − beta, root = 1 / sqrt(1 − beta2ⁿ),
    rate = lr / (1 − beta1ⁿ). coefficient is [] f64 on the device.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    share = tl.load(coefficient).to(tl.float32)
    g_now = share * tl.load(g + at, mask=inside, other=0.0)
    m_now = tl.fma(beta1, tl.load(m + at, mask=inside, other=0.0), rest1 * g_now)
    v_now = tl.fma(beta2, tl.load(v + at, mask=inside, other=0.0), rest2 * g_now * g_now)
    below = tl.fma(tl.sqrt_rn(v_now), root, eps)
    p_now = tl.fma(keep, tl.load(p + at, mask=inside, other=0.0), -(rate * tl.div_rn(m_now, below)))
    tl.store(m + at, m_now, mask=inside)
    tl.store(v + at, v_now, mask=inside)
    tl.store(p + at, p_now, mask=inside)
    if COPY:
        tl.store(copy + at, p_now.to(tl.bfloat16), mask=inside)


SPECS = [
    Spec(
        fn=square_sums,
        params={"g": "*f32", "sums": "*f64", "count": "i64", "first": "i64"},
        variants=[{"CHUNK": CHUNK, "LANES": 1024}],
        grid="cdiv(count, CHUNK)",
        divisible=("count",),
        scalars=("sums",),
    ),
    Spec(
        fn=clip_coefficient,
        params={"sums": "*f64", "norm": "*f64", "coefficient": "*f64", "blocks": "i32", "most": "f64"},
        variants=[{"LANES": 1024}],
        grid="1",
        scalars=("norm", "coefficient"),
    ),
    Spec(
        fn=adamw,
        params={
            "p": "*f32", "g": "*f32", "m": "*f32", "v": "*f32", "copy": "*bf16", "coefficient": "*f64",
            "count": "i64", "keep": "f32", "beta1": "f32", "rest1": "f32", "beta2": "f32", "rest2": "f32",
            "root": "f32", "eps": "f32", "rate": "f32",
        },
        variants=[{"COPY": 0, "BLOCK": 1024}, {"COPY": 1, "BLOCK": 1024}],
        grid="cdiv(count, BLOCK)",
        divisible=("count",),
        scalars=("coefficient",),
    ),
]  # fmt: skip
