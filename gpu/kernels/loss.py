"""Cross-entropy over the vocabulary (plan kernels CrossEntropy, CrossEntropyGrad, Argmax, HeadLoss, HeadLossGrad)."""

import triton
import triton.language as tl

from gpu.registry import Spec, with_dtypes

# MODE
FORWARD, GRADIENT, BOTH = 0, 1, 2


@triton.jit
def cross_entropy(
    logits, targets, nll, lse, likeliest, dlogits, rows, vocab, logits_row, base, nll_factor, lse_factor,
    MODE: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Of each row of logits [rows, vocab] with its target [rows] i64, or −100 if it does not count.

    MODE 0 writes nll and lse [rows] f32, and likeliest [rows] i64, the lowest index of the maximum. MODE 1 reads nll
    and lse, and writes dlogits [rows, vocab]. MODE 2 writes nll, lse and dlogits. dlogits is dense, and may be logits
    if they are dense.

    lse = max + ln Σ exp(logit − max), nll = lse − logit of the target, 0 where ignored; both are added in f64 and rounded
    once. dlogits = spread · exp(logit − lse) − (down at the target), with down = base + nll_factor · nll and spread =
    down + lse_factor · lse; 0 where ignored. base = scale, nll_factor = 2 · nll_square · scale, lse_factor = 2 · z_loss
    · scale. A target outside the vocabulary makes its nll NaN, and reads nothing. One program for each row; lane l adds
    the logits l, l + BV, … in order; then the lanes are added as a tree.
    """
    row = tl.program_id(0)
    target = tl.load(targets + row)
    x = logits + row.to(tl.int64) * logits_row
    lane = tl.arange(0, BV)
    if MODE != 1:
        # Before the reductions, which let no warp overtake another: dlogits may overwrite it.
        known = (target >= 0) & (target < vocab)
        hit = tl.load(x + target, mask=known, other=float("nan")).to(tl.float64)
        top = tl.full([BV], float("-inf"), tl.float32)
        total = tl.zeros([BV], tl.float32)
        place = tl.zeros([BV], tl.int32)
        for start in range(0, vocab, BV):
            at = start + lane
            now = tl.load(x + at, mask=at < vocab, other=float("-inf")).to(tl.float32)
            if MODE == 0:
                place = tl.where(now > top, at, place)
            most = tl.maximum(top, now)
            # A lane that has seen only −∞ keeps 0; −∞ − −∞ would be NaN.
            safe = tl.where(most == float("-inf"), 0.0, most)
            total = total * tl.exp(top - safe) + tl.exp(now - safe)
            top = most
        most = tl.max(top, 0)
        safe = tl.where(most == float("-inf"), 0.0, most)
        total = tl.sum(total * tl.exp(top - safe), 0)
        whole = most.to(tl.float64) + tl.log(total.to(tl.float64))
        lse_now = whole.to(tl.float32)
        nll_now = tl.where(target == -100, 0.0, (whole - hit).to(tl.float32))
        tl.store(lse + row, lse_now)
        tl.store(nll + row, nll_now)
        if MODE == 0:
            best = tl.min(tl.where(top == most, place, 2147483647), 0)
            tl.store(likeliest + row, best.to(tl.int64))
    else:
        lse_now = tl.load(lse + row)
        nll_now = tl.load(nll + row)
    if MODE != 0:
        counts = target != -100
        down = tl.where(counts, nll_now * nll_factor + base, 0.0)
        spread = tl.where(counts, lse_now * lse_factor, 0.0) + down
        out = dlogits + row.to(tl.int64) * vocab
        for start in range(0, vocab, BV):
            at = start + lane
            now = tl.load(x + at, mask=at < vocab, other=float("-inf")).to(tl.float32)
            d = spread * tl.exp(now - lse_now) - tl.where(at == target, down, 0.0)
            tl.store(out + at, tl.where(counts, d, 0.0).to(out.dtype.element_ty), mask=at < vocab)


@triton.jit
def loss_sum(nll, lse, targets, loss, counted, rows, nll_square, z_loss, LANES: tl.constexpr):
    """loss [] f64 = Σ nll + nll_square · nll² + z_loss · lse² over the rows that count, counted [] i64 their number.

    One program: lane l adds the rows l, l + LANES, … in order, in f64; then the lanes are added as a tree.
    """
    total = tl.zeros([LANES], tl.float64)
    count = tl.zeros([LANES], tl.int64)
    for start in range(0, rows, LANES):
        at = start + tl.arange(0, LANES)
        counts = tl.load(targets + at, mask=at < rows, other=-100) != -100
        n = tl.load(nll + at, mask=at < rows, other=0.0).to(tl.float64)
        l = tl.load(lse + at, mask=at < rows, other=0.0).to(tl.float64)
        total += tl.where(counts, n + n * n * nll_square + l * l * z_loss, 0.0)
        count += counts.to(tl.int64)
    tl.store(loss, tl.sum(total, 0))
    tl.store(counted, tl.sum(count, 0))


SPECS = [
    Spec(
        fn=cross_entropy,
        params={
            "logits": "*T", "targets": "*i64", "nll": "*f32", "lse": "*f32", "likeliest": "*i64", "dlogits": "*T",
            "rows": "i32", "vocab": "i32", "logits_row": "i64", "base": "f32", "nll_factor": "f32",
            "lse_factor": "f32",
        },
        variants=with_dtypes(*({"MODE": mode, "BV": 4096} for mode in (FORWARD, GRADIENT, BOTH))),
        grid="rows",
        divisible=("vocab", "logits_row"),
        scalars=("targets", "nll", "lse", "likeliest"),
        warps=8,
    ),
    Spec(
        fn=loss_sum,
        params={
            "nll": "*f32", "lse": "*f32", "targets": "*i64", "loss": "*f64", "counted": "*i64", "rows": "i32",
            "nll_square": "f64", "z_loss": "f64",
        },
        variants=[{"LANES": 1024}],
        grid="1",
        scalars=("loss", "counted"),
    ),
]  # fmt: skip
