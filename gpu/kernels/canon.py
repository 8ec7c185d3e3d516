"""Canon layers and short convolutions: depthwise and causal over time (plan kernels CausalConv, ConvSwiGlu, gradients).

Of c channels and K taps, y[t] = act(bias + Σ_j w[j] x[t − (K−1) + j]) (+ x[t] if residual). An operand in several parts
takes one launch for each part: `first` is the part's first channel of `total`. Rows before the first are `past`
[batch, K−1, total], or zeros. `bias` may be null, with has_bias 0.
"""

import triton
import triton.language as tl

from gpu.kernels.common import sigmoid, silu_slope
from gpu.registry import Spec, with_dtypes

# The compiled filters. Every published model has 4 taps; the source takes any number.
TAPS = (4,)


@triton.jit
def filter_taps(weight, channel, inside, K: tl.constexpr):
    """The K taps of each channel, [1, BC] f32 each."""
    taps = ()
    for j in tl.static_range(K):
        tap = tl.load(weight + channel * K + j, mask=inside, other=0.0).to(tl.float32)
        taps = taps + (tap[None, :],)
    return taps


@triton.jit
def rows_from(x, t, c, inside, time, x_row, FROM: tl.constexpr, COUNT: tl.constexpr):
    """x[t + FROM], …, x[t + FROM + COUNT − 1] as COUNT tiles [BT, BC] f32; zeros outside the sequence."""
    tiles = ()
    start = x + t[:, None].to(tl.int64) * x_row + c[None, :]
    for n in tl.static_range(COUNT):
        shifted = t + (FROM + n)
        mask = ((shifted >= 0) & (shifted < time))[:, None] & inside[None, :]
        tiles = tiles + (tl.load(start + (FROM + n) * x_row, mask=mask, other=0.0).to(tl.float32),)
    return tiles


@triton.jit
def add_past(tiles, past, t, channel, inside, total, K: tl.constexpr):
    """The tiles of rows_from(…, −(K−1), K) with the rows before the first token from past [K−1, total]."""
    filled = ()
    for n in tl.static_range(K):
        row = t + n  # row t − (K−1) + n of x is row t + n of past, which begins K−1 rows before x
        mask = (row < K - 1)[:, None] & inside[None, :]
        at = row[:, None] * total + channel[None, :]
        filled = filled + (tiles[n] + tl.load(past + at, mask=mask, other=0.0).to(tl.float32),)
    return filled


@triton.jit
def convolve(start, taps, tiles, SKIP: tl.constexpr, K: tl.constexpr):
    """start + Σ_j taps[j] · tiles[SKIP + j], taps in order."""
    total = start
    for j in tl.static_range(K):
        total = tl.fma(tiles[SKIP + j], taps[j] + tl.zeros_like(total), total)
    return total


@triton.jit
def load_bias(bias, channel, inside, has_bias):
    return tl.load(bias + channel, mask=inside & (has_bias != 0), other=0.0).to(tl.float32)[None, :]


@triton.jit
def causal_conv_forward(
    x, weight, bias, past, y, batch, time, channels, first, total, x_batch, x_row, residual, has_bias,
    K: tl.constexpr, SILU: tl.constexpr, STATE: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y [batch, time, channels] of the part x; its items are x_batch elements apart, its rows x_row."""
    strips, spans = tl.cdiv(channels, BC), tl.cdiv(time, BT)
    c = (tl.program_id(0) % strips) * BC + tl.arange(0, BC)
    t = (tl.program_id(0) // strips % spans) * BT + tl.arange(0, BT)
    b = (tl.program_id(0) // strips // spans).to(tl.int64)
    inside, channel = c < channels, first + c
    taps = filter_taps(weight, channel, inside, K)
    tiles = rows_from(x + b * x_batch, t, c, inside, time, x_row, 1 - K, K)
    if STATE:
        tiles = add_past(tiles, past + b * (K - 1) * total, t, channel, inside, total, K)
    start = load_bias(bias, channel, inside, has_bias) + tl.zeros([BT, BC], tl.float32)
    made = convolve(start, taps, tiles, 0, K)
    if SILU:
        made = made * sigmoid(made)
    made = tl.where(residual != 0, made + tiles[K - 1], made)
    at = (b * time + t[:, None]) * channels + c[None, :]
    tl.store(y + at, made.to(y.dtype.element_ty), mask=(t < time)[:, None] & inside[None, :])


@triton.jit
def causal_conv_backward(
    dy, x, weight, bias, dx, partial_weight, partial_bias, batch, time, channels, first, total,
    dy_batch, dy_row, x_batch, x_row, residual, has_bias,
    K: tl.constexpr, SILU: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """dx [batch, time, channels] of the part x; partial_weight [P, total, K] and, with a bias, partial_bias [P, total],
    f32, with P = batch · cdiv(time, CHUNK): sum_rows adds them. Zeros before the first token.

    With p the convolution and dp = dy act'(p): dx[t] = Σ_j w[j] dp[t + (K−1) − j] (+ dy[t]). Token lane r of BT adds
    dp[t] x[t − (K−1) + j] of the tokens r, r + BT, … of its chunk in order; then the lanes are added as a tree.
    """
    strips, spans = tl.cdiv(channels, BC), tl.cdiv(time, CHUNK)
    c = (tl.program_id(0) % strips) * BC + tl.arange(0, BC)
    part = tl.program_id(0) // strips
    b = (part // spans).to(tl.int64)
    inside, channel = c < channels, first + c
    taps = filter_taps(weight, channel, inside, K)
    zero = tl.zeros([BT, BC], tl.float32)
    start = load_bias(bias, channel, inside, has_bias) + zero
    sums, sum_bias = (zero,) * K, zero
    from_row = part % spans * CHUNK
    for row in range(from_row, from_row + CHUNK, BT):
        t = row + tl.arange(0, BT)
        # x[t − (K−1)] …, as far as p[t + K−1] needs it; dy[t] …
        COUNT: tl.constexpr = 2 * K - 1 if SILU else K
        tiles = rows_from(x + b * x_batch, t, c, inside, time, x_row, 1 - K, COUNT)
        grads = rows_from(dy + b * dy_batch, t, c, inside, time, dy_row, 0, K)
        into = tl.where(residual != 0, grads[0], zero)
        now = zero
        for s in tl.static_range(K):
            dp = grads[s]
            if SILU:
                dp = dp * silu_slope(convolve(start, taps, tiles, s, K))
            into = tl.fma(dp, taps[K - 1 - s] + zero, into)
            if s == 0:
                now = dp
        at = (b * time + t[:, None]) * channels + c[None, :]
        tl.store(dx + at, into.to(dx.dtype.element_ty), mask=(t < time)[:, None] & inside[None, :])
        added = ()
        for j in tl.static_range(K):
            added = added + (tl.fma(now, tiles[j], sums[j]),)
        sums = added
        sum_bias += now
    place = part.to(tl.int64) * total + channel
    for j in tl.static_range(K):
        tl.store(partial_weight + place * K + j, tl.sum(sums[j], 0), mask=inside)
    tl.store(partial_bias + place, tl.sum(sum_bias, 0), mask=inside & (has_bias != 0))


@triton.jit
def conv_swiglu_forward(
    gate, up, weight, bias, past, y, batch, time, channels, gate_batch, gate_row, up_batch, up_row, residual,
    has_bias, K: tl.constexpr, STATE: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y [batch, time, channels] = silu(g) · u, with g and u the convolutions of gate and up, not rounded. weight
    [2 channels, K], bias [2 channels] and past [batch, K−1, 2 channels] have the channels of gate, then those of up."""
    strips, spans, total = tl.cdiv(channels, BC), tl.cdiv(time, BT), 2 * channels
    c = (tl.program_id(0) % strips) * BC + tl.arange(0, BC)
    t = (tl.program_id(0) // strips % spans) * BT + tl.arange(0, BT)
    b = (tl.program_id(0) // strips // spans).to(tl.int64)
    inside, zero = c < channels, tl.zeros([BT, BC], tl.float32)
    before = past + b * (K - 1) * total

    tiles = rows_from(gate + b * gate_batch, t, c, inside, time, gate_row, 1 - K, K)
    if STATE:
        tiles = add_past(tiles, before, t, c, inside, total, K)
    g = convolve(load_bias(bias, c, inside, has_bias) + zero, filter_taps(weight, c, inside, K), tiles, 0, K)
    g = tl.where(residual != 0, g + tiles[K - 1], g)

    channel = channels + c
    tiles = rows_from(up + b * up_batch, t, c, inside, time, up_row, 1 - K, K)
    if STATE:
        tiles = add_past(tiles, before, t, channel, inside, total, K)
    taps = filter_taps(weight, channel, inside, K)
    u = convolve(load_bias(bias, channel, inside, has_bias) + zero, taps, tiles, 0, K)
    u = tl.where(residual != 0, u + tiles[K - 1], u)

    at = (b * time + t[:, None]) * channels + c[None, :]
    mask = (t < time)[:, None] & inside[None, :]
    tl.store(y + at, (g * sigmoid(g) * u).to(y.dtype.element_ty), mask=mask)


@triton.jit
def conv_swiglu_backward(
    dy, gate, up, weight, bias, dgate, dup, partial_weight, partial_bias, batch, time, channels,
    dy_batch, dy_row, gate_batch, gate_row, up_batch, up_row, residual, has_bias,
    K: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """dgate and dup [batch, time, channels]; partial_weight [P, 2 channels, K] and, with a bias, partial_bias
    [P, 2 channels], f32, with P = batch · cdiv(time, CHUNK), in the order of causal_conv_backward."""
    strips, spans, total = tl.cdiv(channels, BC), tl.cdiv(time, CHUNK), 2 * channels
    c = (tl.program_id(0) % strips) * BC + tl.arange(0, BC)
    part = tl.program_id(0) // strips
    b = (part // spans).to(tl.int64)
    inside, channel = c < channels, channels + c
    zero = tl.zeros([BT, BC], tl.float32)
    taps_g, taps_u = filter_taps(weight, c, inside, K), filter_taps(weight, channel, inside, K)
    start_g = load_bias(bias, c, inside, has_bias) + zero
    start_u = load_bias(bias, channel, inside, has_bias) + zero
    sums_g, sums_u, bias_g, bias_u = (zero,) * K, (zero,) * K, zero, zero
    from_row = part % spans * CHUNK
    for row in range(from_row, from_row + CHUNK, BT):
        t = row + tl.arange(0, BT)
        tiles_g = rows_from(gate + b * gate_batch, t, c, inside, time, gate_row, 1 - K, 2 * K - 1)
        tiles_u = rows_from(up + b * up_batch, t, c, inside, time, up_row, 1 - K, 2 * K - 1)
        grads = rows_from(dy + b * dy_batch, t, c, inside, time, dy_row, 0, K)
        into_g, into_u, now_g, now_u = zero, zero, zero, zero
        for s in tl.static_range(K):
            g = convolve(start_g, taps_g, tiles_g, s, K)
            g = tl.where(residual != 0, g + tiles_g[s + K - 1], g)
            u = convolve(start_u, taps_u, tiles_u, s, K)
            u = tl.where(residual != 0, u + tiles_u[s + K - 1], u)
            dg = grads[s] * u * silu_slope(g)
            du = grads[s] * (g * sigmoid(g))
            into_g = tl.fma(dg, taps_g[K - 1 - s] + zero, into_g)
            into_u = tl.fma(du, taps_u[K - 1 - s] + zero, into_u)
            if s == 0:
                now_g, now_u = dg, du
        into_g = tl.where(residual != 0, into_g + now_g, into_g)
        into_u = tl.where(residual != 0, into_u + now_u, into_u)
        at = (b * time + t[:, None]) * channels + c[None, :]
        mask = (t < time)[:, None] & inside[None, :]
        tl.store(dgate + at, into_g.to(dgate.dtype.element_ty), mask=mask)
        tl.store(dup + at, into_u.to(dup.dtype.element_ty), mask=mask)
        added_g, added_u = (), ()
        for j in tl.static_range(K):
            added_g = added_g + (tl.fma(now_g, tiles_g[j], sums_g[j]),)
            added_u = added_u + (tl.fma(now_u, tiles_u[j], sums_u[j]),)
        sums_g, sums_u = added_g, added_u
        bias_g += now_g
        bias_u += now_u
    place = part.to(tl.int64) * total
    for j in tl.static_range(K):
        tl.store(partial_weight + (place + c) * K + j, tl.sum(sums_g[j], 0), mask=inside)
        tl.store(partial_weight + (place + channel) * K + j, tl.sum(sums_u[j], 0), mask=inside)
    biased = inside & (has_bias != 0)
    tl.store(partial_bias + place + c, tl.sum(bias_g, 0), mask=biased)
    tl.store(partial_bias + place + channel, tl.sum(bias_u, 0), mask=biased)


SPECS = [
    Spec(
        fn=causal_conv_forward,
        params={
            "x": "*T", "weight": "*T", "bias": "*T", "past": "*T", "y": "*T", "batch": "i32", "time": "i32",
            "channels": "i32", "first": "i32", "total": "i32", "x_batch": "i64", "x_row": "i64", "residual": "i32",
            "has_bias": "i32",
        },
        variants=with_dtypes(*(
            {"K": k, "SILU": silu, "STATE": state, "BT": 32, "BC": 64}
            for k in TAPS for silu in (0, 1) for state in (0, 1)
        )),
        grid="batch * cdiv(time, BT) * cdiv(channels, BC)",
        divisible=("channels", "first", "total", "x_batch", "x_row"),
    ),
    Spec(
        fn=causal_conv_backward,
        params={
            "dy": "*T", "x": "*T", "weight": "*T", "bias": "*T", "dx": "*T", "partial_weight": "*f32",
            "partial_bias": "*f32", "batch": "i32", "time": "i32", "channels": "i32", "first": "i32", "total": "i32",
            "dy_batch": "i64", "dy_row": "i64", "x_batch": "i64", "x_row": "i64", "residual": "i32",
            "has_bias": "i32",
        },
        variants=with_dtypes(*(
            {"K": k, "SILU": silu, "BT": 16, "BC": 64, "CHUNK": 256} for k in TAPS for silu in (0, 1)
        )),
        grid="batch * cdiv(time, CHUNK) * cdiv(channels, BC)",
        # silu needs 2K − 1 rows of x at once: with 4 warps a thread would have no register left.
        warps=lambda constants, _: 8 if constants["SILU"] else 4,
        divisible=("channels", "first", "total", "dy_batch", "dy_row", "x_batch", "x_row"),
    ),
    Spec(
        fn=conv_swiglu_forward,
        params={
            "gate": "*T", "up": "*T", "weight": "*T", "bias": "*T", "past": "*T", "y": "*T", "batch": "i32",
            "time": "i32", "channels": "i32", "gate_batch": "i64", "gate_row": "i64", "up_batch": "i64",
            "up_row": "i64", "residual": "i32", "has_bias": "i32",
        },
        variants=with_dtypes(*({"K": k, "STATE": state, "BT": 16, "BC": 64} for k in TAPS for state in (0, 1))),
        grid="batch * cdiv(time, BT) * cdiv(channels, BC)",
        divisible=("channels", "gate_batch", "gate_row", "up_batch", "up_row"),
    ),
    Spec(
        fn=conv_swiglu_backward,
        params={
            "dy": "*T", "gate": "*T", "up": "*T", "weight": "*T", "bias": "*T", "dgate": "*T", "dup": "*T",
            "partial_weight": "*f32", "partial_bias": "*f32", "batch": "i32", "time": "i32", "channels": "i32",
            "dy_batch": "i64", "dy_row": "i64", "gate_batch": "i64", "gate_row": "i64", "up_batch": "i64",
            "up_row": "i64", "residual": "i32", "has_bias": "i32",
        },
        variants=with_dtypes(*({"K": k, "BT": 16, "BC": 64, "CHUNK": 256} for k in TAPS)),
        grid="batch * cdiv(time, CHUNK) * cdiv(channels, BC)",
        # Without hints every element has an address of its own, in two registers.
        warps=lambda _, aligned: 8 if aligned else 16,
        divisible=("channels", "dy_batch", "dy_row", "gate_batch", "gate_row", "up_batch", "up_row"),
    ),
]  # fmt: skip
