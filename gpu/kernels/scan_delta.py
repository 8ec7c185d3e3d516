"""The gated delta rule (Yang et al. 2024, "Gated Delta Networks", equation 10 and section 3.3), in chunks:

    S ← exp(g_t) S        S ← S + β_t k_t (v_t − Sᵀ k_t)ᵀ        y_t = scale Sᵀ q_t

Shapes: q, k [B, T, H, K]; v, y [B, T, H, V]; beta, g [B, T, H], g at most 0; states [B, H, K, V]. All are contiguous. K
is 64 or 128, V a multiple of BLOCK_V. q, k, v, y and their gradients are bf16 or f32; beta, g, their gradients and the
states are f32. scale is K^(-1/2) where the language asks for a scan.

Within a chunk of rows i, j, with p_i the decay from the chunk's start to row i, r_j that from row j to its end, M_ij
that from j to i, S the state before the chunk, and L the strictly lower part of β ⊙ (K Kᵀ) ⊙ M:

    U = (I + L)⁻¹ β (V − p ⊙ (K S)) = fresh − faded S,   fresh = (I + L)⁻¹ (β V),   faded = (I + L)⁻¹ (β p K)
    Y = scale (p ⊙ (Q S)) + A U,   A = scale (Q Kᵀ ⊙ M)        S ← p_end S + (r ⊙ K)ᵀ U

Forward:  delta_inverse, delta_rows (keys, then values), delta_states, delta_output.
Backward: the same without delta_output, then delta_state_gradients, delta_rows_back, delta_pair_gradients,
          delta_gate_gradients, delta_key_gradients.

Workspaces, NT = ceil(T / CHUNK): scores (A), inverse, pull and push [B, H, NT, CHUNK, CHUNK]; faded [B, T, H, K]; fresh,
written (U), dwritten and dsolved [B, T, H, V]; states and gradients [B, H, NT, K, V], all in the dtype of q, since they are
operands of products; rows [2, B, H, NT, CHUNK] f32.
"""

import triton
import triton.language as tl

from gpu.kernels.scan_common import end_decays, gate_gradient, product, scalar_decays, split_gates, start_decays
from gpu.registry import Spec


@triton.jit
def block_inverses(lower, CHUNK: tl.constexpr):
    """(I + L)⁻¹ of each block of 16 on the diagonal of L [CHUNK, CHUNK], row by row; 0 elsewhere."""
    BLOCKS: tl.constexpr = CHUNK // 16
    row, block = tl.arange(0, 16), tl.arange(0, BLOCKS)
    same = block[:, None, None, None] == block[None, None, :, None]
    diagonal = tl.sum(tl.where(same, tl.reshape(lower, [BLOCKS, 16, BLOCKS, 16]), 0.0), 2)
    eye = (row[:, None] == row[None, :]).to(tl.float32)
    inverse = tl.zeros([BLOCKS, 16, 16], tl.float32) + eye[None, :, :]
    for i in range(1, 16):
        factors = tl.sum(tl.where(row[None, :, None] == i, diagonal, 0.0), 1)
        less = tl.sum(factors[:, :, None] * inverse, 1)
        inverse = tl.where(row[None, :, None] == i, inverse - less[:, None, :], inverse)
    spread = tl.zeros([BLOCKS, 16, BLOCKS, 16], tl.float32) + inverse[:, :, None, :]
    return tl.reshape(tl.where(same, spread, 0.0), [CHUNK, CHUNK])


@triton.jit
def series_inverse(lower, CHUNK: tl.constexpr):
    """(I + L)⁻¹ for L strictly lower, CHUNK at most 64, as accurate as tf32: with D the inverses of the diagonal blocks
    and F = D times the rest of L, which has no fourth power, (I − F + F² − F³) D."""
    blocks = block_inverses(lower, CHUNK)
    at = tl.arange(0, CHUNK)
    rest = tl.where(at[:, None] // 16 == at[None, :] // 16, 0.0, lower)
    f = tl.dot(blocks, rest, input_precision="tf32")
    square = tl.dot(f, f, input_precision="tf32")
    series = tl.dot(-f, square, square - f, input_precision="tf32")
    return tl.dot(series, blocks, blocks, input_precision="tf32")


@triton.jit
def solved_inverse(lower, work, inverse, CHUNK: tl.constexpr):
    """Writes (I + L)⁻¹, L strictly lower, in f32: rows by blocks of 16, R_i = D_i (I_i − Σ L_ij R_j), through memory,
    since this takes too many registers at once. `work` has room for L."""
    row, column = tl.arange(0, 16), tl.arange(0, CHUNK)
    at = tl.arange(0, CHUNK)[:, None] * CHUNK + column[None, :]
    tl.store(work + at, lower)
    tl.store(inverse + at, block_inverses(lower, CHUNK))
    tl.debug_barrier()
    for i in range(1, CHUNK // 16):
        rows = row[:, None] * CHUNK + column[None, :]
        corner = row[:, None] * CHUNK + row[None, :]
        known = tl.zeros([16, CHUNK], tl.float32)
        for j in range(0, i):
            factors = tl.load(work + i * 16 * CHUNK + j * 16 + corner)
            known = tl.dot(factors, tl.load(inverse + j * 16 * CHUNK + rows), known, input_precision="tf32x3")
        diagonal = tl.load(inverse + i * 16 * (CHUNK + 1) + corner)
        own = tl.load(inverse + i * 16 * CHUNK + rows)
        known = tl.dot(-diagonal, known, own, input_precision="tf32x3")
        tl.debug_barrier()
        tl.store(inverse + i * 16 * CHUNK + rows, known)
        tl.debug_barrier()


@triton.jit
def delta_inverse(
    q, k, beta, g, scores, inverse, B, T, H, scale, K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """A and (I + L)⁻¹ of one chunk. Grid (NT, B·H)."""
    chunk, task = tl.program_id(0), tl.program_id(1)
    NT = tl.num_programs(0)
    TYPE: tl.constexpr = q.dtype.element_ty
    row = tl.arange(0, CHUNK)
    live = chunk * CHUNK + row < T
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    square = row[:, None] * CHUNK + row[None, :]
    scores += (task.to(tl.int64) * NT + chunk) * (CHUNK * CHUNK)
    inverse += (task.to(tl.int64) * NT + chunk) * (CHUNK * CHUNK)
    kk = tl.zeros([CHUNK, CHUNK], tl.float32)
    for block in range(0, K, BLOCK_K):
        at = row[:, None] * (H * K) + (block + tl.arange(0, BLOCK_K))[None, :]
        k_rows = tl.load(k + first * K + at, mask=live[:, None], other=0.0)
        kk = product(k_rows, tl.trans(k_rows), kk, TYPE)
    gates = tl.load(g + first + row * H, mask=live, other=0.0).to(tl.float32)
    rates = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32)
    between, _, _, _ = scalar_decays(gates, CHUNK)
    lower = tl.where(row[:, None] > row[None, :], kk * between * rates[:, None], 0.0)
    if TYPE == tl.float32:
        solved_inverse(lower, scores, inverse, CHUNK)
    else:
        tl.store(inverse + square, series_inverse(lower, CHUNK).to(TYPE))
    qk = tl.zeros([CHUNK, CHUNK], tl.float32)
    for block in range(0, K, BLOCK_K):
        at = row[:, None] * (H * K) + (block + tl.arange(0, BLOCK_K))[None, :]
        k_rows = tl.load(k + first * K + at, mask=live[:, None], other=0.0)
        q_rows = tl.load(q + first * K + at, mask=live[:, None], other=0.0)
        qk = product(q_rows, tl.trans(k_rows), qk, TYPE)
    gates = tl.load(g + first + row * H, mask=live, other=0.0).to(tl.float32)
    between, _, _, _ = scalar_decays(gates, CHUNK)
    tl.store(scores + square, (qk * between * scale).to(TYPE))


@triton.jit
def delta_rows(
    x, beta, g, inverse, out, B, T, H, W, fades, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):
    """(I + L)⁻¹ (β X), or, where fades is not 0, (I + L)⁻¹ (β p X), for x [B, T, H, W].
    Grid (W / BLOCK, NT, B·H)."""
    chunk, task = tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    TYPE: tl.constexpr = x.dtype.element_ty
    row = tl.arange(0, CHUNK)
    live = chunk * CHUNK + row < T
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    gates = tl.load(g + first + row * H, mask=live & (fades != 0), other=0.0).to(tl.float32)
    since_start, _ = start_decays(gates)
    rates = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32) * since_start
    at = row[:, None] * (H * W) + (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    x_rows = tl.load(x + first * W + at, mask=live[:, None], other=0.0).to(tl.float32) * rates[:, None]
    square = row[:, None] * CHUNK + row[None, :]
    solve = tl.load(inverse + (task.to(tl.int64) * NT + chunk) * (CHUNK * CHUNK) + square)
    result = product(solve, x_rows, tl.zeros([CHUNK, BLOCK], tl.float32), TYPE)
    tl.store(out + first * W + at, result.to(TYPE), mask=live[:, None])


@triton.jit
def delta_rows_back(
    dwritten, inverse, dsolved, B, T, H, V, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """D = (I + L)⁻ᵀ dU of one chunk, by BLOCK_K rows of dU. Grid (V / BLOCK_V, NT, B·H)."""
    chunk, task = tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    TYPE: tl.constexpr = dwritten.dtype.element_ty
    row = tl.arange(0, CHUNK)
    value = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    square = (task.to(tl.int64) * NT + chunk) * (CHUNK * CHUNK)
    d = tl.zeros([CHUNK, BLOCK_V], tl.float32)
    for part in range(0, CHUNK, BLOCK_K):
        other = part + tl.arange(0, BLOCK_K)
        near = (chunk * CHUNK + other < T)[:, None]
        du = tl.load(dwritten + first * V + (other[:, None] * (H * V) + value[None, :]), mask=near, other=0.0)
        solve = tl.load(inverse + square + (row[:, None] + other[None, :] * CHUNK))
        d = product(solve, du, d, TYPE)
    at = row[:, None] * (H * V) + value[None, :]
    tl.store(dsolved + first * V + at, d.to(TYPE), mask=(chunk * CHUNK + row < T)[:, None])


@triton.jit
def times_state(rows, matrix, state, acc, live, H, V, K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr):
    """acc + X S for X [CHUNK, K] at `rows`, whose next token is H·K further. S is `state`; where K takes several
    blocks, it is read back from `matrix`, to which this program has just written it: registers cannot be cut."""
    TYPE: tl.constexpr = rows.dtype.element_ty
    row = tl.arange(0, acc.shape[0])
    if BLOCK_K == K:
        at = row[:, None] * (H * K) + tl.arange(0, K)[None, :]
        acc = product(tl.load(rows + at, mask=live[:, None], other=0.0), state, acc, TYPE)
    else:
        tl.debug_barrier()
        for block in range(0, K, BLOCK_K):
            key = block + tl.arange(0, BLOCK_K)
            x = tl.load(rows + row[:, None] * (H * K) + key[None, :], mask=live[:, None], other=0.0)
            s = tl.load(matrix + key[:, None] * V + tl.arange(0, BLOCK_V)[None, :])
            acc = product(x, s, acc, TYPE)
        tl.debug_barrier()
    return acc


@triton.jit
def delta_states(
    k, g, faded, fresh, start, states, written, last, B, T, H, V, has_start,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, STAGES: tl.constexpr,
):
    """The state before each chunk, and after the last; and U. Grid (V / BLOCK_V, B·H); chunks in order.
    `start` is read if has_start is not 0."""
    task = tl.program_id(1)
    TYPE: tl.constexpr = k.dtype.element_ty
    row, key = tl.arange(0, CHUNK), tl.arange(0, K)
    corner = tl.program_id(0) * BLOCK_V
    value = tl.arange(0, BLOCK_V)
    NT = tl.cdiv(T, CHUNK)
    cell = key[:, None] * V + value[None, :]
    matrix = task.to(tl.int64) * K * V + corner
    s = tl.load(start + matrix + cell, mask=(cell >= 0) & (has_start != 0), other=0.0)
    for chunk in tl.range(0, NT, num_stages=STAGES):
        here = states + (task.to(tl.int64) * NT + chunk) * K * V + corner
        tl.store(here + cell, s.to(TYPE))
        live = chunk * CHUNK + row < T
        first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
        u = tl.zeros([CHUNK, BLOCK_V], tl.float32)
        u = times_state(faded + first * K, here, s, u, live, H, V, K, BLOCK_K, BLOCK_V)
        at = row[:, None] * (H * V) + value[None, :]
        u = tl.load(fresh + first * V + corner + at, mask=live[:, None], other=0.0).to(tl.float32) - u
        tl.store(written + first * V + corner + at, u.to(TYPE), mask=live[:, None])
        gates = tl.load(g + first + row * H, mask=live, other=0.0).to(tl.float32)
        to_end, end = end_decays(gates)
        k_rows = tl.load(k + first * K + row[:, None] * (H * K) + key[None, :], mask=live[:, None], other=0.0)
        s = product(tl.trans(k_rows), u * to_end[:, None], s * end, TYPE)
    tl.store(last + matrix + cell, s)


@triton.jit
def delta_output(
    q, g, scores, written, states, y, B, T, H, V, scale,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """y of one chunk. Grid (V / BLOCK_V, NT, B·H)."""
    chunk, task = tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    TYPE: tl.constexpr = q.dtype.element_ty
    row = tl.arange(0, CHUNK)
    value = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    live = chunk * CHUNK + row < T
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    here = task.to(tl.int64) * NT + chunk
    out = tl.zeros([CHUNK, BLOCK_V], tl.float32)
    for block in range(0, K, BLOCK_K):
        key = block + tl.arange(0, BLOCK_K)
        q_rows = tl.load(q + first * K + row[:, None] * (H * K) + key[None, :], mask=live[:, None], other=0.0)
        s = tl.load(states + here * K * V + (key[:, None] * V + value[None, :]))
        out = product(q_rows, s, out, TYPE)
    since_start, _ = start_decays(tl.load(g + first + row * H, mask=live, other=0.0).to(tl.float32))
    weights = tl.load(scores + here * (CHUNK * CHUNK) + row[:, None] * CHUNK + row[None, :])
    at = row[:, None] * (H * V) + value[None, :]
    u = tl.load(written + first * V + at, mask=live[:, None], other=0.0)
    out = product(weights, u, out * (since_start * scale)[:, None], TYPE)
    tl.store(y + first * V + at, out.to(TYPE), mask=live[:, None])


@triton.jit
def delta_state_gradients(
    dy, q, k, g, scores, faded, gradients, dwritten, B, T, H, V, scale,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, STAGES: tl.constexpr,
):
    """The gradient of the state after each chunk, 0 after the last, and dU. Grid (V / BLOCK_V, B·H); chunks from the last
    to the first: dU = Aᵀ dY + r ⊙ (K dS), dS ← p_end dS + scale (p ⊙ Q)ᵀ dY − fadedᵀ dU."""
    task = tl.program_id(1)
    TYPE: tl.constexpr = k.dtype.element_ty
    row, key = tl.arange(0, CHUNK), tl.arange(0, K)
    corner = tl.program_id(0) * BLOCK_V
    value = tl.arange(0, BLOCK_V)
    NT = tl.cdiv(T, CHUNK)
    cell = key[:, None] * V + value[None, :]
    ds = tl.zeros([K, BLOCK_V], tl.float32)
    for back in tl.range(0, NT, num_stages=STAGES):
        chunk = NT - 1 - back
        place = task.to(tl.int64) * NT + chunk
        here = gradients + place * K * V + corner
        tl.store(here + cell, ds.to(TYPE))
        live = chunk * CHUNK + row < T
        first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
        gates = tl.load(g + first + row * H, mask=live, other=0.0).to(tl.float32)
        to_end, end = end_decays(gates)
        since_start, _ = start_decays(gates)
        du = tl.zeros([CHUNK, BLOCK_V], tl.float32)
        du = times_state(k + first * K, here, ds, du, live, H, V, K, BLOCK_K, BLOCK_V) * to_end[:, None]
        at = row[:, None] * (H * V) + value[None, :]
        dy_rows = tl.load(dy + first * V + corner + at, mask=live[:, None], other=0.0)
        weights = tl.load(scores + place * (CHUNK * CHUNK) + row[:, None] * CHUNK + row[None, :])
        du = product(tl.trans(weights), dy_rows, du, TYPE)
        tl.store(dwritten + first * V + corner + at, du.to(TYPE), mask=live[:, None])
        ds *= end
        if BLOCK_K == K:
            wide = row[:, None] * (H * K) + key[None, :]
            q_rows = tl.load(q + first * K + wide, mask=live[:, None], other=0.0)
            dy_faded = dy_rows.to(tl.float32) * (since_start * scale)[:, None]
            ds = product(tl.trans(q_rows), dy_faded, ds, TYPE)
            w_rows = tl.load(faded + first * K + wide, mask=live[:, None], other=0.0)
            ds = product(tl.trans(w_rows), -du, ds, TYPE)
        else:
            # By parts of the chunk, through memory: registers cannot be cut.
            tl.debug_barrier()
            above = tl.full([], 0.0, tl.float32)
            below = tl.full([], 0.0, tl.float32)
            for part in range(0, CHUNK, BLOCK_K):
                other = part + tl.arange(0, BLOCK_K)
                near = chunk * CHUNK + other < T
                part_gates = tl.load(g + first + other * H, mask=near, other=0.0).to(tl.float32)
                coarse, fine = split_gates(part_gates)
                fades = tl.exp2((above + tl.cumsum(coarse, 0)) + (below + tl.cumsum(fine, 0))) * scale
                above += tl.sum(coarse, 0)
                below += tl.sum(fine, 0)
                wide = other[:, None] * (H * K) + key[None, :]
                narrow = other[:, None] * (H * V) + value[None, :]
                q_rows = tl.load(q + first * K + wide, mask=near[:, None], other=0.0)
                dy_part = tl.load(dy + first * V + corner + narrow, mask=near[:, None], other=0.0).to(tl.float32)
                ds = product(tl.trans(q_rows), dy_part * fades[:, None], ds, TYPE)
                w_rows = tl.load(faded + first * K + wide, mask=near[:, None], other=0.0)
                du_part = tl.load(dwritten + first * V + corner + narrow, mask=near[:, None], other=0.0)
                ds = product(tl.trans(w_rows), -du_part.to(tl.float32), ds, TYPE)


@triton.jit
def delta_pair_gradients(
    dy, k, v, beta, g, scores, written, dsolved, pull, push, rows, B, T, H, V, scale,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """What the keys' gradients need of one chunk; of each gate the terms of pairs of rows, and of each beta all but those
    of Z. Grid (NT, B·H). dL = −D Uᵀ, dA = dY Uᵀ, pull = scale dA ⊙ M, push = dL ⊙ M."""
    chunk, task = tl.program_id(0), tl.program_id(1)
    NT = tl.num_programs(0)
    TYPE: tl.constexpr = k.dtype.element_ty
    row = tl.arange(0, CHUNK)
    live = chunk * CHUNK + row < T
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    here = task.to(tl.int64) * NT + chunk
    square = here * (CHUNK * CHUNK)
    cell = row[:, None] * CHUNK + row[None, :]
    da = tl.zeros([CHUNK, CHUNK], tl.float32)
    dl = tl.zeros([CHUNK, CHUNK], tl.float32)
    dbeta = tl.zeros([CHUNK], tl.float32)
    for block in range(0, V, BLOCK_V):
        at = row[:, None] * (H * V) + (block + tl.arange(0, BLOCK_V))[None, :]
        d = tl.load(dsolved + first * V + at, mask=live[:, None], other=0.0)
        v_rows = tl.load(v + first * V + at, mask=live[:, None], other=0.0)
        dbeta += tl.sum(d.to(tl.float32) * v_rows.to(tl.float32), 1)
        u_rows = tl.trans(tl.load(written + first * V + at, mask=live[:, None], other=0.0))
        dl = product(d, u_rows, dl, TYPE)
        dy_rows = tl.load(dy + first * V + at, mask=live[:, None], other=0.0)
        da = product(dy_rows, u_rows, da, TYPE)
    gates = tl.load(g + first + row * H, mask=live, other=0.0).to(tl.float32)
    between, _, _, _ = scalar_decays(gates, CHUNK)
    below = row[:, None] > row[None, :]
    tl.store(pull + square + cell, (da * between * scale).to(TYPE))
    pairs = tl.where(below, da * tl.load(scores + square + cell).to(tl.float32), 0.0)
    dl = tl.where(below, dl * between, 0.0)
    tl.store(push + square + cell, (-dl).to(TYPE))
    kk = tl.zeros([CHUNK, CHUNK], tl.float32)
    for inner in range(0, K, BLOCK_K):
        at = row[:, None] * (H * K) + (inner + tl.arange(0, BLOCK_K))[None, :]
        k_rows = tl.load(k + first * K + at, mask=live[:, None], other=0.0)
        kk = product(k_rows, tl.trans(k_rows), kk, TYPE)
    dl = dl * kk
    rates = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32)
    nothing = tl.zeros([CHUNK], tl.float32)
    crossing = gate_gradient(pairs - dl * rates[:, None], nothing, nothing, 0.0, CHUNK)
    tl.store(rows + here * CHUNK + row, crossing)
    tl.store(rows + ((B * H).to(tl.int64) * NT + here) * CHUNK + row, dbeta - tl.sum(dl, 1))


@triton.jit
def delta_gate_gradients(
    dy, q, k, beta, g, written, dsolved, states, gradients, rows, dv, dbeta, dg, B, T, H, V, scale,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """dv, dbeta and dg of one chunk. Grid (NT, B·H). dV = β ⊙ D; Z = p ⊙ (K S)."""
    chunk, task = tl.program_id(0), tl.program_id(1)
    NT = tl.num_programs(0)
    TYPE: tl.constexpr = q.dtype.element_ty
    row = tl.arange(0, CHUNK)
    live = chunk * CHUNK + row < T
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    here = task.to(tl.int64) * NT + chunk
    rates = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32)
    through_q = tl.zeros([CHUNK], tl.float32)
    through_z = tl.zeros([CHUNK], tl.float32)
    until_end = tl.zeros([CHUNK], tl.float32)
    kept = tl.zeros([BLOCK_K], tl.float32)
    for block in range(0, V, BLOCK_V):
        value = block + tl.arange(0, BLOCK_V)
        read = tl.zeros([CHUNK, BLOCK_V], tl.float32)
        z = tl.zeros([CHUNK, BLOCK_V], tl.float32)
        du = tl.zeros([CHUNK, BLOCK_V], tl.float32)
        for inner in range(0, K, BLOCK_K):
            key = inner + tl.arange(0, BLOCK_K)
            wide = row[:, None] * (H * K) + key[None, :]
            cell = key[:, None] * V + value[None, :]
            s = tl.load(states + here * K * V + cell)
            ds = tl.load(gradients + here * K * V + cell)
            kept += tl.sum(s.to(tl.float32) * ds.to(tl.float32), 1)
            read = product(tl.load(q + first * K + wide, mask=live[:, None], other=0.0), s, read, TYPE)
            k_rows = tl.load(k + first * K + wide, mask=live[:, None], other=0.0)
            z = product(k_rows, s, z, TYPE)
            du = product(k_rows, ds, du, TYPE)
        at = row[:, None] * (H * V) + value[None, :]
        through_q += tl.sum(read * tl.load(dy + first * V + at, mask=live[:, None], other=0.0).to(tl.float32), 1)
        until_end += tl.sum(du * tl.load(written + first * V + at, mask=live[:, None], other=0.0).to(tl.float32), 1)
        d = tl.load(dsolved + first * V + at, mask=live[:, None], other=0.0).to(tl.float32)
        through_z += tl.sum(z * d, 1)
        tl.store(dv + first * V + at, (d * rates[:, None]).to(TYPE), mask=live[:, None])
    gates = tl.load(g + first + row * H, mask=live, other=0.0).to(tl.float32)
    since_start, _ = start_decays(gates)
    to_end, end = end_decays(gates)
    through_z = through_z * since_start
    rest = tl.load(rows + ((B * H).to(tl.int64) * NT + here) * CHUNK + row)
    tl.store(dbeta + first + row * H, (rest - through_z).to(dbeta.dtype.element_ty), mask=live)
    from_start = through_q * since_start * scale - through_z * rates
    before = tl.where(row[None, :] < row[:, None], (until_end * to_end)[None, :], 0.0)
    out = tl.load(rows + here * CHUNK + row) + tl.cumsum(from_start, 0, reverse=True)
    out += tl.sum(before, 1) + tl.sum(kept, 0) * end
    tl.store(dg + first + row * H, out.to(dg.dtype.element_ty), mask=live)


@triton.jit
def delta_key_gradients(
    dy, q, k, beta, g, written, dv, states, gradients, pull, push, dq, dk, B, T, H, V, scale,
    K: tl.constexpr, CHUNK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """dq and dk of one chunk. Grid (K / BLOCK_K, NT, B·H). dQ = scale (p ⊙ dY) Sᵀ + pull K,
    dK = (r ⊙ U) dSᵀ − (p ⊙ dV) Sᵀ + pullᵀ Q + (β push) K + (β push)ᵀ K."""
    chunk, task = tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    TYPE: tl.constexpr = q.dtype.element_ty
    row = tl.arange(0, CHUNK)
    key = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    live = chunk * CHUNK + row < T
    first = ((task // H).to(tl.int64) * T + chunk * CHUNK) * H + task % H
    here = task.to(tl.int64) * NT + chunk
    gates = tl.load(g + first + row * H, mask=live, other=0.0).to(tl.float32)
    since_start, _ = start_decays(gates)
    to_end, _ = end_decays(gates)
    dq_rows = tl.zeros([CHUNK, BLOCK_K], tl.float32)
    dk_rows = tl.zeros([CHUNK, BLOCK_K], tl.float32)
    for block in range(0, V, BLOCK_V):
        value = block + tl.arange(0, BLOCK_V)
        at = row[:, None] * (H * V) + value[None, :]
        cell = key[:, None] * V + value[None, :]
        s = tl.trans(tl.load(states + here * K * V + cell))
        dy_rows = tl.load(dy + first * V + at, mask=live[:, None], other=0.0).to(tl.float32)
        dq_rows = product(dy_rows * (since_start * scale)[:, None], s, dq_rows, TYPE)
        dv_rows = tl.load(dv + first * V + at, mask=live[:, None], other=0.0).to(tl.float32)
        dk_rows = product(dv_rows * -since_start[:, None], s, dk_rows, TYPE)
        u_rows = tl.load(written + first * V + at, mask=live[:, None], other=0.0).to(tl.float32)
        ds = tl.trans(tl.load(gradients + here * K * V + cell))
        dk_rows = product(u_rows * to_end[:, None], ds, dk_rows, TYPE)
    PART: tl.constexpr = BLOCK_K if BLOCK_K < CHUNK else CHUNK
    for part in range(0, CHUNK, PART):
        other = part + tl.arange(0, PART)
        near = (chunk * CHUNK + other < T)[:, None]
        at = other[:, None] * (H * K) + key[None, :]
        k_rows = tl.load(k + first * K + at, mask=near, other=0.0)
        q_rows = tl.load(q + first * K + at, mask=near, other=0.0)
        square = here * (CHUNK * CHUNK)
        across = row[:, None] * CHUNK + other[None, :]
        down = row[:, None] + other[None, :] * CHUNK
        dq_rows = product(tl.load(pull + square + across), k_rows, dq_rows, TYPE)
        dk_rows = product(tl.load(pull + square + down), q_rows, dk_rows, TYPE)
        theirs = tl.load(beta + first + other * H, mask=chunk * CHUNK + other < T, other=0.0).to(tl.float32)
        rates = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32)
        weights = tl.load(push + square + across).to(tl.float32) * rates[:, None]
        weights += tl.load(push + square + down).to(tl.float32) * theirs[None, :]
        dk_rows = product(weights, k_rows, dk_rows, TYPE)
    at = row[:, None] * (H * K) + key[None, :]
    tl.store(dq + first * K + at, dq_rows.to(TYPE), mask=live[:, None])
    tl.store(dk + first * K + at, dk_rows.to(TYPE), mask=live[:, None])


def _spec(fn, params, grid, tiles, warps, options=None):
    """One kernel: its variants are K = 64 and 128, with `tiles` (BLOCK_K, BLOCK_V) by dtype."""
    names = fn.arg_names
    variants = []
    for k in (64, 128):
        for dtype in ("bf16", "f32"):
            block_k, block_v = tiles[dtype]
            sizes = {"K": k, "CHUNK": 64, "BLOCK_K": min(k, block_k), "BLOCK_V": block_v, "BLOCK": block_v}
            # The next chunk's loads start early in delta_states in bf16. f32 reads back what it has just written, and for
            # the gradients shared memory would leave room for one program on a multiprocessor.
            sizes["STAGES"] = 2 if dtype == "bf16" and fn is delta_states else 1
            variant = {"dtype": dtype, **{key: value for key, value in sizes.items() if key in names}}
            if variant not in variants:
                variants.append(variant)
    wide = {name: "*f32" for name in ("beta", "g", "dbeta", "dg", "start", "last", "rows")}
    whole = {name: "i32" for name in ("B", "T", "H", "V", "W", "has_start", "fades")}
    types = {**wide, **whole, "scale": "f32"}
    listed = {name: types.get(name, "*T") for name in params.split()}
    divisible = tuple(name for name in ("V", "W") if name in listed)
    return Spec(fn, listed, variants, grid, divisible, lambda constants, _: warps[constants["dtype"]],
                aligned_only=True, options=options or {})  # fmt: skip


_EIGHT = {"bf16": 8, "f32": 8}
_FOUR = {"bf16": 4, "f32": 8}
_TILES = {"bf16": (64, 64), "f32": (32, 32)}
SPECS = [
    _spec(delta_inverse, "q k beta g scores inverse B T H scale", "cdiv(T, CHUNK), B * H", _TILES, _FOUR),
    _spec(delta_rows, "x beta g inverse out B T H W fades", "cdiv(W, BLOCK), cdiv(T, CHUNK), B * H", _TILES, _FOUR),
    _spec(
        delta_states, "k g faded fresh start states written last B T H V has_start",
        "cdiv(V, BLOCK_V), B * H", {"bf16": (128, 32), "f32": (16, 32)}, _FOUR,
    ),
    _spec(
        delta_output, "q g scores written states y B T H V scale",
        "cdiv(V, BLOCK_V), cdiv(T, CHUNK), B * H", _TILES, _FOUR,
    ),
    _spec(
        delta_state_gradients, "dy q k g scores faded gradients dwritten B T H V scale",
        "cdiv(V, BLOCK_V), B * H", {"bf16": (128, 32), "f32": (32, 16)}, _FOUR,
    ),
    _spec(
        delta_rows_back, "dwritten inverse dsolved B T H V", "cdiv(V, BLOCK_V), cdiv(T, CHUNK), B * H", _TILES, _FOUR
    ),
    _spec(
        delta_pair_gradients,
        "dy k v beta g scores written dsolved pull push rows B T H V scale",
        "cdiv(T, CHUNK), B * H", {"bf16": (64, 64), "f32": (16, 16)}, _EIGHT,
        # Without it, the compiler spills for sm_100 at 128 registers.
        {"maxnreg": 255},
    ),
    _spec(
        delta_gate_gradients,
        "dy q k beta g written dsolved states gradients rows dv dbeta dg B T H V scale",
        "cdiv(T, CHUNK), B * H", {"bf16": (32, 64), "f32": (32, 32)}, _EIGHT,
    ),
    _spec(
        delta_key_gradients, "dy q k beta g written dv states gradients pull push dq dk B T H V scale",
        "cdiv(K, BLOCK_K), cdiv(T, CHUNK), B * H", {"bf16": (32, 64), "f32": (32, 32)}, _EIGHT,
    ),
]  # fmt: skip
