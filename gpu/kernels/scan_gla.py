"""Gated linear attention (Yang et al. 2023, "Gated Linear Attention Transformers", equation 3, sections 4.2 and 4.3), in
chunks:

    S_t = diag(exp g_t) S_{t-1} + k_t v_tᵀ        y_t = scale S_tᵀ q_t

and, with READ_FIRST, the recurrence of RWKV-6 (Peng et al. 2024, "Eagle and Finch", section 4), which reads the state
before it writes it, with a bonus u [H, K] for the present token:

    y_t = scale (S_{t-1} + diag(u) k_t v_tᵀ)ᵀ q_t

Shapes: q, k, g [B, T, H, K], g at most 0; v, y [B, T, H, V]; states [B, H, K, V]. All are contiguous. K is 64 or 128, V a
multiple of BLOCK_V. q, k, v, g, y and their gradients are bf16 or f32; the states are f32. u and its gradient are
f32. scale is K^(-1/2) where the language asks for a scan, and 1 for RWKV-6.

Within a chunk of rows i, j, with p_i and r_j the decays of each channel from the chunk's start to row i and from row j to
its end, and S the state before the chunk:

    A_ij = scale Σ_d q_id k_jd exp(g_{j+1,d} + … + g_id), j ≤ i
    Y = A V + scale (p ⊙ Q) S        S ← diag(p_end) S + (r ⊙ K)ᵀ V

A is made by blocks of 16 rows. Left of the block, both factors decay to the border between: exponents are sums of gates,
and tensor cores multiply. On the diagonal, decays are running products, row by row, and no tensor core is used: any
reference point there would have positive exponents.

With READ_FIRST, a query has not decayed in its own row: p_i ends at row i - 1, g_{j+1,d} + … + g_{i-1,d} are the gates
between rows j < i, and A_ii is scale Σ_d q_id u_d k_id. No gate is between neighbours, j = i - 1. Their terms would
cancel in a gate's gradient, like those of a token with itself, so gla_key_gradients adds both kinds afterwards.

Forward:  gla_scores, gla_states, gla_output.
Backward: gla_scores, gla_states, gla_state_gradients, gla_score_gradients, gla_value_gradients, gla_near_gradients,
          gla_key_gradients.

Workspaces, NT = ceil(T / CHUNK): scores (A) and dscores [B, H, NT, CHUNK, CHUNK], states and gradients [B, H, NT, K, V],
in the dtype of q, since they are operands of products; near_q and near_k [B, T, H, K] f32; with READ_FIRST, bonus
[B, NT, H, K] f32, the gradient of u by chunks, which `sum_rows` adds. Without it, u and bonus are null.
"""

import triton
import triton.language as tl

from gpu.kernels.scan_common import LOG2E, product, split_gates
from gpu.registry import Spec

# Rows of a block of A.
ROWS = tl.constexpr(16)


@triton.jit
def decay_rows(g, limit, rows, READ_FIRST: tl.constexpr):
    """The decay of each channel from each row to the last row before `limit`, 0 from there on; and that from `limit` to
    each row, as its query sees it, 0 before it. `g` are the gates of a chunk's `rows`, [CHUNK, BLOCK_K]."""
    coarse, fine = split_gates(g)
    before = (rows < limit)[:, None]
    above, below = tl.cumsum(coarse, 0), tl.cumsum(fine, 0)
    border_above = tl.sum(tl.where(before, coarse, 0.0), 0)[None, :]
    border_below = tl.sum(tl.where(before, fine, 0.0), 0)[None, :]
    until = tl.exp2(tl.where(before, (border_above - above) + (border_below - below), float("-inf")))
    if READ_FIRST:
        above = above - coarse
        below = below - fine
    since = (above - border_above) + (below - border_below)
    return until, tl.exp2(tl.where(before, float("-inf"), since))


@triton.jit
def decays_of_block(g, READ_FIRST: tl.constexpr):
    """Within a block of rows: the decays from its start to each row, as its query sees it, and from each row to its end;
    and the whole's."""
    coarse, fine = split_gates(g)
    above, below = tl.cumsum(coarse, 0), tl.cumsum(fine, 0)
    end_above, end_below = tl.sum(coarse, 0), tl.sum(fine, 0)
    to_end = tl.exp2((end_above[None, :] - above) + (end_below[None, :] - below))
    if READ_FIRST:
        above = above - coarse
        below = below - fine
    return tl.exp2(above + below), to_end, tl.exp2(end_above + end_below)


@triton.jit
def gla_scores(
    q, k, g, u, scores, B, T, H, scale,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, READ_FIRST: tl.constexpr,
):
    """A, by blocks of 16 rows. Grid (CHUNK / 16, NT, B·H)."""
    block, chunk, task = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    TYPE: tl.constexpr = q.dtype.element_ty
    row, column = tl.arange(0, ROWS), tl.arange(0, CHUNK)
    border = block * ROWS
    left = T - chunk * CHUNK
    first = (((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H) * K
    near = first + border * H * K
    far = tl.zeros([ROWS, CHUNK], tl.float32)
    own = tl.zeros([ROWS, ROWS], tl.float32)
    for inner in range(0, K, BLOCK_K):
        key = inner + tl.arange(0, BLOCK_K)
        at = row[:, None] * (H * K) + key[None, :]
        live = (border + row < left)[:, None]
        q_rows = tl.load(q + near + at, mask=live, other=0.0).to(tl.float32)
        gates = tl.load(g + near + at, mask=live, other=0.0).to(tl.float32)
        since_start, _, _ = decays_of_block(gates, READ_FIRST)
        wide = column[:, None] * (H * K) + key[None, :]
        ahead = (column < tl.minimum(border, left))[:, None]
        gates = tl.load(g + first + wide, mask=ahead, other=0.0).to(tl.float32)
        until, _ = decay_rows(gates, border, column, READ_FIRST)
        k_rows = tl.load(k + first + wide, mask=ahead, other=0.0).to(tl.float32) * until
        far = product(q_rows * since_start, tl.trans(k_rows), far, TYPE)
        decay = tl.zeros([ROWS, BLOCK_K], tl.float32)
        for back in range(0, ROWS):
            j = ROWS - 1 - back
            # The row after the block is not read: 0 times its gate would spread a NaN to earlier rows.
            next_live = (j + 1 < ROWS) & (border + j + 1 < left)
            after = tl.load(g + near + (j + 1) * H * K + key, mask=next_live & (key >= 0), other=0.0)
            after = tl.exp2(after.to(tl.float32) * LOG2E)
            decay = tl.where(row[:, None] == j + READ_FIRST, 1.0, decay * after[None, :])
            seen = decay
            if READ_FIRST:
                bonus = tl.load(u + (task % H) * K + key)
                seen = tl.where(row[:, None] == j, bonus[None, :], decay)
            k_row = tl.load(k + near + j * H * K + key, mask=(border + j < left) & (key >= 0), other=0.0)
            score = tl.sum(q_rows * seen * k_row.to(tl.float32)[None, :], 1)
            own += tl.where(row[None, :] == j, score[:, None], 0.0)
    to = scores + ((task.to(tl.int64) * NT + chunk) * CHUNK + border) * CHUNK
    inside = (column >= border) & (column < border + ROWS)
    tl.store(to + row[:, None] * CHUNK + column[None, :], (far * scale).to(TYPE), mask=~inside[None, :])
    tl.store(to + row[:, None] * CHUNK + border + row[None, :], (own * scale).to(TYPE))


@triton.jit
def gla_states(
    k, v, g, start, states, last, B, T, H, V, has_start,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """The state before each chunk, and after the last. Grid (K / BLOCK_K, V / BLOCK_V, B·H); chunks in order.
    `start` is read if has_start is not 0."""
    task = tl.program_id(2)
    row = tl.arange(0, CHUNK)
    key = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    value = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    NT = tl.cdiv(T, CHUNK)
    cell = key[:, None] * V + value[None, :]
    matrix = task.to(tl.int64) * K * V
    s = tl.load(start + matrix + cell, mask=(cell >= 0) & (has_start != 0), other=0.0)
    for chunk in range(0, NT):
        tl.store(states + (task.to(tl.int64) * NT + chunk) * K * V + cell, s.to(states.dtype.element_ty))
        live = (chunk * CHUNK + row < T)[:, None]
        first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
        at = row[:, None] * (H * K) + key[None, :]
        _, to_end, end = decays_of_block(tl.load(g + first * K + at, mask=live, other=0.0).to(tl.float32), 0)
        k_rows = tl.load(k + first * K + at, mask=live, other=0.0).to(tl.float32) * to_end
        v_rows = tl.load(v + first * V + (row[:, None] * (H * V) + value[None, :]), mask=live, other=0.0)
        s = product(tl.trans(k_rows), v_rows, s * end[:, None], k.dtype.element_ty)
    tl.store(last + matrix + cell, s)


@triton.jit
def gla_output(
    q, v, g, scores, states, y, B, T, H, V, scale,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, READ_FIRST: tl.constexpr,
):
    """y of one chunk. Grid (V / BLOCK_V, NT, B·H)."""
    chunk, task = tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    TYPE: tl.constexpr = q.dtype.element_ty
    row = tl.arange(0, CHUNK)
    value = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    live = (chunk * CHUNK + row < T)[:, None]
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    here = task.to(tl.int64) * NT + chunk
    out = tl.zeros([CHUNK, BLOCK_V], tl.float32)
    for inner in range(0, K, BLOCK_K):
        key = inner + tl.arange(0, BLOCK_K)
        at = row[:, None] * (H * K) + key[None, :]
        gates = tl.load(g + first * K + at, mask=live, other=0.0).to(tl.float32)
        since_start, _, _ = decays_of_block(gates, READ_FIRST)
        q_rows = tl.load(q + first * K + at, mask=live, other=0.0).to(tl.float32) * since_start * scale
        s = tl.load(states + here * K * V + (key[:, None] * V + value[None, :]))
        out = product(q_rows, s, out, TYPE)
    place = first * V
    for part in range(0, CHUNK, BLOCK_K):
        other = part + tl.arange(0, BLOCK_K)
        near = (chunk * CHUNK + other < T)[:, None]
        weights = tl.load(scores + here * (CHUNK * CHUNK) + (row[:, None] * CHUNK + other[None, :]))
        v_rows = tl.load(v + place + (other[:, None] * (H * V) + value[None, :]), mask=near, other=0.0)
        out = product(weights, v_rows, out, TYPE)
    tl.store(y + place + (row[:, None] * (H * V) + value[None, :]), out.to(TYPE), mask=live)


@triton.jit
def gla_state_gradients(
    dy, q, g, gradients, B, T, H, V, scale,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, READ_FIRST: tl.constexpr,
):
    """The gradient of the state after each chunk, 0 after the last. Grid (K / BLOCK_K, V / BLOCK_V, B·H); chunks from the
    last to the first: dS ← diag(p_end) dS + scale (p ⊙ Q)ᵀ dY."""
    task = tl.program_id(2)
    row = tl.arange(0, CHUNK)
    key = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    value = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    NT = tl.cdiv(T, CHUNK)
    cell = key[:, None] * V + value[None, :]
    ds = tl.zeros([BLOCK_K, BLOCK_V], tl.float32)
    for back in range(0, NT):
        chunk = NT - 1 - back
        tl.store(gradients + (task.to(tl.int64) * NT + chunk) * K * V + cell, ds.to(gradients.dtype.element_ty))
        live = (chunk * CHUNK + row < T)[:, None]
        first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
        at = row[:, None] * (H * K) + key[None, :]
        gates = tl.load(g + first * K + at, mask=live, other=0.0).to(tl.float32)
        since_start, _, end = decays_of_block(gates, READ_FIRST)
        q_rows = tl.load(q + first * K + at, mask=live, other=0.0).to(tl.float32) * since_start * scale
        dy_rows = tl.load(dy + first * V + (row[:, None] * (H * V) + value[None, :]), mask=live, other=0.0)
        ds = product(tl.trans(q_rows), dy_rows, ds * end[:, None], q.dtype.element_ty)


@triton.jit
def gla_score_gradients(dy, v, dscores, B, T, H, V, scale, CHUNK: tl.constexpr, BLOCK_V: tl.constexpr):
    """dA times the scale, on and below the diagonal: scale dY Vᵀ. Grid (NT, B·H)."""
    chunk, task = tl.program_id(0), tl.program_id(1)
    NT = tl.num_programs(0)
    TYPE: tl.constexpr = v.dtype.element_ty
    row = tl.arange(0, CHUNK)
    live = (chunk * CHUNK + row < T)[:, None]
    first = (((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H) * V
    out = tl.zeros([CHUNK, CHUNK], tl.float32)
    for block in range(0, V, BLOCK_V):
        at = row[:, None] * (H * V) + (block + tl.arange(0, BLOCK_V))[None, :]
        dy_rows = tl.load(dy + first + at, mask=live, other=0.0)
        v_rows = tl.load(v + first + at, mask=live, other=0.0)
        out = product(dy_rows, tl.trans(v_rows), out, TYPE)
    out = tl.where(row[:, None] >= row[None, :], out * scale, 0.0)
    to = dscores + (task.to(tl.int64) * NT + chunk) * (CHUNK * CHUNK)
    tl.store(to + (row[:, None] * CHUNK + row[None, :]), out.to(TYPE))


@triton.jit
def gla_value_gradients(
    dy, k, g, scores, gradients, dv, B, T, H, V,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """dV = Aᵀ dY + (r ⊙ K) dS. Grid (V / BLOCK_V, NT, B·H)."""
    chunk, task = tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    TYPE: tl.constexpr = k.dtype.element_ty
    row = tl.arange(0, CHUNK)
    value = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    live = (chunk * CHUNK + row < T)[:, None]
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    here = task.to(tl.int64) * NT + chunk
    out = tl.zeros([CHUNK, BLOCK_V], tl.float32)
    for inner in range(0, K, BLOCK_K):
        key = inner + tl.arange(0, BLOCK_K)
        at = row[:, None] * (H * K) + key[None, :]
        _, to_end, _ = decays_of_block(tl.load(g + first * K + at, mask=live, other=0.0).to(tl.float32), 0)
        k_rows = tl.load(k + first * K + at, mask=live, other=0.0).to(tl.float32) * to_end
        ds = tl.load(gradients + here * K * V + (key[:, None] * V + value[None, :]))
        out = product(k_rows, ds, out, TYPE)
    place = first * V
    for part in range(0, CHUNK, BLOCK_K):
        other = part + tl.arange(0, BLOCK_K)
        near = (chunk * CHUNK + other < T)[:, None]
        weights = tl.load(scores + here * (CHUNK * CHUNK) + (row[:, None] + other[None, :] * CHUNK))
        dy_rows = tl.load(dy + place + (other[:, None] * (H * V) + value[None, :]), mask=near, other=0.0)
        out = product(weights, dy_rows, out, TYPE)
    tl.store(dv + place + (row[:, None] * (H * V) + value[None, :]), out.to(TYPE), mask=live)


@triton.jit
def gla_near_gradients(
    q, k, g, dscores, near_q, near_k, B, T, H,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, READ_FIRST: tl.constexpr,
):
    """What pairs of rows j < i of one chunk add to dq_i and dk_j, by blocks of 16 rows: left of and below the block by
    products, within it row by row; with READ_FIRST, all but neighbours. Grid (CHUNK / 16 · K / BLOCK_K, NT, B·H)."""
    block, chunk, task = tl.program_id(0) % (CHUNK // ROWS), tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    TYPE: tl.constexpr = q.dtype.element_ty
    row, column = tl.arange(0, ROWS), tl.arange(0, CHUNK)
    key = tl.program_id(0) // (CHUNK // ROWS) * BLOCK_K + tl.arange(0, BLOCK_K)
    border = block * ROWS
    left = T - chunk * CHUNK
    first = (((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H) * K
    near = first + border * H * K
    square = dscores + (task.to(tl.int64) * NT + chunk) * (CHUNK * CHUNK)
    at = row[:, None] * (H * K) + key[None, :]
    wide = column[:, None] * (H * K) + key[None, :]
    live = (border + row < left)[:, None]
    inside = (column < left)[:, None]
    block_gates = tl.load(g + near + at, mask=live, other=0.0).to(tl.float32)
    since_start, to_end, _ = decays_of_block(block_gates, READ_FIRST)
    gates = tl.load(g + first + wide, mask=inside, other=0.0).to(tl.float32)
    zero = tl.zeros([ROWS, BLOCK_K], tl.float32)

    # dq: keys before the block.
    until, _ = decay_rows(gates, border, column, READ_FIRST)
    k_rows = tl.load(k + first + wide, mask=inside, other=0.0).to(tl.float32) * until
    weights = tl.load(square + (border + row)[:, None] * CHUNK + column[None, :])
    if READ_FIRST:
        weights = tl.where((border + row)[:, None] == column[None, :] + 1, 0.0, weights.to(tl.float32))
    dq_rows = product(weights, k_rows, zero, TYPE) * since_start
    # dq: keys of the block, from the last to the first.
    decay = zero
    for back in range(0, ROWS - 1):
        j = ROWS - 2 - back
        after = tl.load(g + near + (j + 1) * H * K + key, mask=(border + j + 1 < left) & (key >= 0), other=0.0)
        after = tl.exp2(after.to(tl.float32) * LOG2E)
        if READ_FIRST:
            decay = tl.where(row[:, None] == j + 1, 1.0, decay * after[None, :])
        else:
            decay = tl.where(row[:, None] == j + 1, 1.0, decay) * after[None, :]
        k_row = tl.load(k + near + j * H * K + key, mask=(border + j < left) & (key >= 0), other=0.0)
        weight = tl.load(square + (border + row) * CHUNK + border + j).to(tl.float32)
        if READ_FIRST:
            weight = tl.where(row == j + 1, 0.0, weight)
        dq_rows += weight[:, None] * (decay * k_row.to(tl.float32)[None, :])
    tl.store(near_q + near + at, dq_rows, mask=live)

    # dk: queries after the block.
    _, since = decay_rows(gates, border + ROWS, column, READ_FIRST)
    q_rows = tl.load(q + first + wide, mask=inside, other=0.0).to(tl.float32) * since
    weights = tl.load(square + column[None, :] * CHUNK + (border + row)[:, None])
    if READ_FIRST:
        weights = tl.where((border + row)[:, None] + 1 == column[None, :], 0.0, weights.to(tl.float32))
    dk_rows = product(weights, q_rows, zero, TYPE) * to_end
    # dk: queries of the block, from the first to the last.
    decay = zero
    for i in range(1, ROWS):
        gate = i - READ_FIRST
        here = tl.load(g + near + gate * H * K + key, mask=(border + gate < left) & (key >= 0), other=0.0)
        here = tl.exp2(here.to(tl.float32) * LOG2E)
        if READ_FIRST:
            decay = tl.where(row[:, None] == i - 1, 1.0, decay * here[None, :])
        else:
            decay = tl.where(row[:, None] == i - 1, 1.0, decay) * here[None, :]
        q_row = tl.load(q + near + i * H * K + key, mask=(border + i < left) & (key >= 0), other=0.0)
        weight = tl.load(square + (border + i) * CHUNK + border + row).to(tl.float32)
        if READ_FIRST:
            weight = tl.where(row == i - 1, 0.0, weight)
        dk_rows += weight[:, None] * (decay * q_row.to(tl.float32)[None, :])
    tl.store(near_k + near + at, dk_rows, mask=live)


@triton.jit
def gla_key_gradients(
    dy, q, k, v, g, u, states, gradients, dscores, near_q, near_k, dq, dk, dg, bonus, B, T, H, V, scale,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, READ_FIRST: tl.constexpr,
):
    """dq, dk, dg and bonus of one chunk. Grid (K / BLOCK_K, NT, B·H). Through the states, dQ = scale p ⊙ (dY Sᵀ) and
    dK = r ⊙ (V dSᵀ); a gate's gradient sums, of each channel, the terms of all pairs on either side of it: of q_i dq_i
    and k_j dk_j, from the chunk's start to i, from j to i, from j to the end, and from the start to the end."""
    chunk, task = tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    TYPE: tl.constexpr = q.dtype.element_ty
    row = tl.arange(0, CHUNK)
    key = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    live = (chunk * CHUNK + row < T)[:, None]
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    matrix = (task.to(tl.int64) * NT + chunk) * K * V
    dq_rows = tl.zeros([CHUNK, BLOCK_K], tl.float32)
    dk_rows = tl.zeros([CHUNK, BLOCK_K], tl.float32)
    same = tl.zeros([CHUNK], tl.float32)
    kept = tl.zeros([BLOCK_K], tl.float32)
    for block in range(0, V, BLOCK_V):
        value = block + tl.arange(0, BLOCK_V)
        narrow = row[:, None] * (H * V) + value[None, :]
        cell = key[:, None] * V + value[None, :]
        s = tl.load(states + matrix + cell)
        ds = tl.load(gradients + matrix + cell)
        kept += tl.sum(s.to(tl.float32) * ds.to(tl.float32), 1)
        dy_rows = tl.load(dy + first * V + narrow, mask=live, other=0.0)
        v_rows = tl.load(v + first * V + narrow, mask=live, other=0.0)
        same += tl.sum(dy_rows.to(tl.float32) * v_rows.to(tl.float32), 1)
        dq_rows = product(dy_rows, tl.trans(s), dq_rows, TYPE)
        dk_rows = product(v_rows, tl.trans(ds), dk_rows, TYPE)
    place = first * K
    at = row[:, None] * (H * K) + key[None, :]
    gates = tl.load(g + place + at, mask=live, other=0.0).to(tl.float32)
    since_start, to_end, end = decays_of_block(gates, READ_FIRST)
    dq_rows = dq_rows * since_start * scale
    dk_rows = dk_rows * to_end
    same = same[:, None] * scale
    q_rows = tl.load(q + place + at, mask=live, other=0.0).to(tl.float32)
    k_rows = tl.load(k + place + at, mask=live, other=0.0).to(tl.float32)
    dq_rows += tl.load(near_q + place + at, mask=live, other=0.0)
    close = tl.load(near_k + place + at, mask=live, other=0.0)
    # From rows before to the end: sums up to the row before, through memory, since to subtract would cancel. With
    # READ_FIRST, from rows before or from the start to queries after this row: the same.
    tl.debug_barrier()
    tl.store(near_k + place + at, k_rows * dk_rows, mask=live)
    if READ_FIRST:
        tl.store(near_q + place + at, q_rows * dq_rows, mask=live)
    tl.debug_barrier()
    above = tl.load(near_k + place - H * K + at, mask=live & (row > 0)[:, None], other=0.0)
    ends = q_rows * dq_rows
    if READ_FIRST:
        has_next = ((row < CHUNK - 1) & (chunk * CHUNK + row + 1 < T))[:, None]
        ends = tl.load(near_q + place + H * K + at, mask=has_next, other=0.0)
    sums = tl.cumsum(ends - k_rows * close, 0, reverse=True)
    sums += tl.cumsum(above, 0) + (end * kept)[None, :]
    tl.store(dg + place + at, sums.to(dg.dtype.element_ty), mask=live)
    dk_rows += close
    if READ_FIRST:
        to = bonus + (((task // H).to(tl.int64) * NT + chunk) * H + task % H) * K
        tl.store(to + key, tl.sum(same * q_rows * k_rows, 0))
        # Pairs of neighbours.
        square = dscores + (task.to(tl.int64) * NT + chunk) * (CHUNK * CHUNK)
        has_last = live & (row > 0)[:, None]
        weight = tl.load(square + row * CHUNK + row - 1, mask=row > 0, other=0.0).to(tl.float32)
        beside = tl.load(k + place - H * K + at, mask=has_last, other=0.0).to(tl.float32)
        dq_rows += weight[:, None] * beside
        weight = tl.load(square + (row + 1) * CHUNK + row, mask=row < CHUNK - 1, other=0.0).to(tl.float32)
        beside = tl.load(q + place + H * K + at, mask=has_next, other=0.0).to(tl.float32)
        dk_rows += weight[:, None] * beside
        same = same * tl.load(u + (task % H) * K + key)[None, :]
    tl.store(dq + place + at, (dq_rows + same * k_rows).to(TYPE), mask=live)
    tl.store(dk + place + at, (dk_rows + same * q_rows).to(TYPE), mask=live)


def _spec(fn, params, grid, tiles, warps, options=None, stages=1):
    """One kernel: its variants are K = 64 and 128, and 64 with READ_FIRST, since RWKV-6 has no other heads, with `tiles`
    (BLOCK_K, BLOCK_V) by dtype."""
    names = fn.arg_names
    variants = []
    for k, read_first in ((64, 0), (128, 0), (64, 1)):
        for dtype in ("bf16", "f32"):
            block_k, block_v = tiles[dtype]
            sizes = {"K": k, "CHUNK": 64, "BLOCK_K": block_k, "BLOCK_V": block_v, "READ_FIRST": read_first}
            variant = {"dtype": dtype, **{key: value for key, value in sizes.items() if key in names}}
            if variant not in variants:
                variants.append(variant)
    wide = {name: "*f32" for name in ("start", "last", "near_q", "near_k", "u", "bonus")}
    types = {**wide, **{name: "i32" for name in ("B", "T", "H", "V", "has_start")}, "scale": "f32"}
    listed = {name: types.get(name, "*T") for name in params.split()}
    divisible = ("V",) if "V" in listed else ()
    return Spec(fn, listed, variants, grid, divisible, lambda constants, _: warps[constants["dtype"]],
                stages=stages, aligned_only=True, options=options or {})  # fmt: skip


_EIGHT = {"bf16": 8, "f32": 8}
_FOUR = {"bf16": 4, "f32": 8}
_TILES = {"bf16": (64, 64), "f32": (32, 32)}
# The 16 steps of a block wait for each other, so many programs at once count for more than large tiles.
_NARROW = {"bf16": (32, 64), "f32": (32, 32)}
SPECS = [
    _spec(
        gla_scores, "q k g u scores B T H scale", "CHUNK // 16, cdiv(T, CHUNK), B * H",
        _NARROW, {"bf16": 4, "f32": 4},
    ),
    _spec(
        gla_states, "k v g start states last B T H V has_start", "K // BLOCK_K, cdiv(V, BLOCK_V), B * H",
        {"bf16": (64, 64), "f32": (32, 64)}, _EIGHT, stages=2,
    ),
    _spec(
        gla_output, "q v g scores states y B T H V scale", "cdiv(V, BLOCK_V), cdiv(T, CHUNK), B * H", _TILES, _EIGHT,
        # Without it, the compiler spills for sm_100 at 64 registers.
        {"maxnreg": 255},
    ),
    _spec(
        gla_state_gradients, "dy q g gradients B T H V scale", "K // BLOCK_K, cdiv(V, BLOCK_V), B * H",
        {"bf16": (64, 64), "f32": (32, 64)}, _EIGHT, stages=2,
    ),
    _spec(gla_score_gradients, "dy v dscores B T H V scale", "cdiv(T, CHUNK), B * H", _TILES, _FOUR),
    _spec(
        gla_value_gradients, "dy k g scores gradients dv B T H V", "cdiv(V, BLOCK_V), cdiv(T, CHUNK), B * H",
        _TILES, _EIGHT,
    ),
    _spec(
        gla_near_gradients, "q k g dscores near_q near_k B T H", "CHUNK // 16 * (K // BLOCK_K), cdiv(T, CHUNK), B * H",
        _NARROW, {"bf16": 4, "f32": 4},
    ),
    _spec(
        gla_key_gradients,
        "dy q k v g u states gradients dscores near_q near_k dq dk dg bonus B T H V scale",
        "K // BLOCK_K, cdiv(T, CHUNK), B * H", {"bf16": (32, 64), "f32": (32, 32)}, _EIGHT,
    ),
]  # fmt: skip
