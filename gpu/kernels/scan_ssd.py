"""The state-space dual recurrence of Mamba2 (Dao and Gu 2024, "Transformers are SSMs", sections 6 and 7), in chunks:

    S_t = exp(dt_t a) S_{t-1} + dt_t x_t b_tᵀ        y_t = S_t c_t + d x_t

Shapes: x, y [B, T, H, P]; dt [B, T, H]; a, d [H]; b, c [B, T, G, N], head j reads group j // (H / G); states
[B, H, P, N]. All are contiguous. N is 64 or 128, P a multiple of BLOCK_P. x, b, c, y and their gradients are bf16 or
f32; dt, a, d, their gradients and the states are f32.

Within a chunk of rows i, j, with u = dt x, p_i the decay from the chunk's start to row i, r_j that from row j to its
end, M_ij that from j to i, and S the state before the chunk:

    Y = p ⊙ (C Sᵀ) + (C Bᵀ ⊙ M) U + d X        S ← p_end S + Uᵀ (r ⊙ B)

Forward:  ssd_scores, ssd_states, ssd_output.
Backward: ssd_scores, ssd_states, ssd_state_gradients, ssd_value_gradients, ssd_gate_gradients, ssd_group_gradients,
          ssd_parameters.

Workspaces, NT = ceil(T / CHUNK): scores [B, G, NT, CHUNK, CHUNK] f32; states and their gradients [B, H, NT, P, N] in the
dtype of x (they are operands of products, so they would be rounded there); weights [B, H, NT, CHUNK, CHUNK] f32;
rows [2, B, H, NT, CHUNK] f32; parts [2, B, H, NT] f32.
"""

import triton
import triton.language as tl

from gpu.kernels.scan_common import end_decays, gate_gradient, product, scalar_decays, start_decays
from gpu.registry import Spec


@triton.jit
def ssd_scores(b, c, scores, B, T, G, N: tl.constexpr, CHUNK: tl.constexpr, BLOCK_N: tl.constexpr):
    """C Bᵀ of each chunk and group. Grid (NT, B·G)."""
    chunk, task = tl.program_id(0), tl.program_id(1)
    row = tl.arange(0, CHUNK)
    live = chunk * CHUNK + row < T
    first = ((task // G).to(tl.int64) * T + chunk * CHUNK) * G + task % G
    out = tl.zeros([CHUNK, CHUNK], tl.float32)
    for block in range(0, N, BLOCK_N):
        at = row[:, None] * (G * N) + (block + tl.arange(0, BLOCK_N))[None, :]
        c_rows = tl.load(c + first * N + at, mask=live[:, None], other=0.0)
        b_rows = tl.load(b + first * N + at, mask=live[:, None], other=0.0)
        out = product(c_rows, tl.trans(b_rows), out, b.dtype.element_ty)
    to = scores + (task.to(tl.int64) * tl.num_programs(0) + chunk) * (CHUNK * CHUNK)
    tl.store(to + row[:, None] * CHUNK + row[None, :], out)


@triton.jit
def ssd_states(
    x, dt, a, b, start, states, last, B, T, H, G, P, has_start,
    N: tl.constexpr, CHUNK: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The state before each chunk, and after the last. Grid (P / BLOCK_P, N / BLOCK_N, B·H); chunks in order.
    `start` is read if has_start is not 0."""
    task = tl.program_id(2)
    batch, head = task // H, task % H
    group = head // (H // G)
    row = tl.arange(0, CHUNK)
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rate = tl.load(a + head).to(tl.float32)
    NT = tl.cdiv(T, CHUNK)
    cell = p[:, None] * N + n[None, :]
    matrix = task.to(tl.int64) * P * N
    s = tl.load(start + matrix + cell, mask=(cell >= 0) & (has_start != 0), other=0.0)
    for chunk in tl.range(0, NT, num_stages=STAGES):
        tl.store(states + (task.to(tl.int64) * NT + chunk) * P * N + cell, s.to(states.dtype.element_ty))
        live = chunk * CHUNK + row < T
        first = batch.to(tl.int64) * T + chunk * CHUNK
        steps = tl.load(dt + first * H + head + row * H, mask=live, other=0.0).to(tl.float32)
        to_end, whole = end_decays(steps * rate)
        x_at = x + (first * H + head) * P
        x_rows = tl.load(x_at + row[:, None] * (H * P) + p[None, :], mask=live[:, None], other=0.0)
        b_at = b + (first * G + group) * N
        b_rows = tl.load(b_at + row[:, None] * (G * N) + n[None, :], mask=live[:, None], other=0.0)
        u = x_rows.to(tl.float32) * (steps * to_end)[:, None]
        s = product(tl.trans(u), b_rows, s * whole, x.dtype.element_ty)
    tl.store(last + matrix + cell, s)


@triton.jit
def ssd_output(
    x, dt, a, c, d, scores, states, y, B, T, H, G, P,
    N: tl.constexpr, CHUNK: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """y of one chunk. Grid (P / BLOCK_P, NT, B·H)."""
    chunk, task = tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    batch, head = task // H, task % H
    group = head // (H // G)
    TYPE: tl.constexpr = x.dtype.element_ty
    row = tl.arange(0, CHUNK)
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    live = chunk * CHUNK + row < T
    first = batch.to(tl.int64) * T + chunk * CHUNK
    c_at = c + (first * G + group) * N
    matrix = states + (task.to(tl.int64) * NT + chunk) * P * N
    out = tl.zeros([CHUNK, BLOCK_P], tl.float32)
    for block in range(0, N, BLOCK_N):
        n = block + tl.arange(0, BLOCK_N)
        c_rows = tl.load(c_at + row[:, None] * (G * N) + n[None, :], mask=live[:, None], other=0.0)
        s = tl.load(matrix + p[:, None] * N + n[None, :])
        out = product(c_rows, tl.trans(s), out, TYPE)
    steps = tl.load(dt + first * H + head + row * H, mask=live, other=0.0).to(tl.float32)
    between, since_start, _, _ = scalar_decays(steps * tl.load(a + head).to(tl.float32), CHUNK)
    square = scores + ((batch * G + group).to(tl.int64) * NT + chunk) * (CHUNK * CHUNK)
    weights = tl.load(square + row[:, None] * CHUNK + row[None, :]) * between
    place = (first * H + head) * P
    at = row[:, None] * (H * P) + p[None, :]
    x_rows = tl.load(x + place + at, mask=live[:, None], other=0.0).to(tl.float32)
    out = product(weights, x_rows * steps[:, None], out * since_start[:, None], TYPE)
    out += tl.load(d + head).to(tl.float32) * x_rows
    tl.store(y + place + at, out.to(y.dtype.element_ty), mask=live[:, None])


@triton.jit
def ssd_state_gradients(
    dy, dt, a, c, gradients, B, T, H, G, P,
    N: tl.constexpr, CHUNK: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradient of the state after each chunk, 0 after the last. Grid (P / BLOCK_P, N / BLOCK_N, B·H); chunks from the
    last to the first: dS ← p_end dS + dYᵀ (p ⊙ C)."""
    task = tl.program_id(2)
    batch, head = task // H, task % H
    group = head // (H // G)
    row = tl.arange(0, CHUNK)
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rate = tl.load(a + head).to(tl.float32)
    NT = tl.cdiv(T, CHUNK)
    cell = p[:, None] * N + n[None, :]
    ds = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
    for back in tl.range(0, NT, num_stages=STAGES):
        chunk = NT - 1 - back
        tl.store(gradients + (task.to(tl.int64) * NT + chunk) * P * N + cell, ds.to(gradients.dtype.element_ty))
        live = chunk * CHUNK + row < T
        first = batch.to(tl.int64) * T + chunk * CHUNK
        steps = tl.load(dt + first * H + head + row * H, mask=live, other=0.0).to(tl.float32)
        since_start, whole = start_decays(steps * rate)
        dy_at = dy + (first * H + head) * P
        dy_rows = tl.load(dy_at + row[:, None] * (H * P) + p[None, :], mask=live[:, None], other=0.0)
        c_at = c + (first * G + group) * N
        c_rows = tl.load(c_at + row[:, None] * (G * N) + n[None, :], mask=live[:, None], other=0.0)
        faded = dy_rows.to(tl.float32) * since_start[:, None]
        ds = product(tl.trans(faded), c_rows, ds * whole, dy.dtype.element_ty)


@triton.jit
def ssd_value_gradients(
    dy, x, dt, a, b, d, scores, gradients, dx, rows, B, T, H, G, P,
    N: tl.constexpr, CHUNK: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """dx of one chunk and head, and two numbers of each row: the part of ddt through U, and the terms of the gates from
    the row to the chunk's end. Grid (NT, B·H). dU = (C Bᵀ ⊙ M)ᵀ dY + r ⊙ (B dSᵀ)."""
    chunk, task = tl.program_id(0), tl.program_id(1)
    NT = tl.num_programs(0)
    batch, head = task // H, task % H
    group = head // (H // G)
    TYPE: tl.constexpr = x.dtype.element_ty
    row = tl.arange(0, CHUNK)
    live = chunk * CHUNK + row < T
    first = batch.to(tl.int64) * T + chunk * CHUNK
    steps = tl.load(dt + first * H + head + row * H, mask=live, other=0.0).to(tl.float32)
    skip = tl.load(d + head).to(tl.float32)
    between, _, to_end, _ = scalar_decays(steps * tl.load(a + head).to(tl.float32), CHUNK)
    square = scores + ((batch * G + group).to(tl.int64) * NT + chunk) * (CHUNK * CHUNK)
    mixed = (tl.load(square + row[:, None] * CHUNK + row[None, :]) * between).to(TYPE)
    here = task.to(tl.int64) * NT + chunk
    until_end = tl.zeros([CHUNK], tl.float32)
    dsteps = tl.zeros([CHUNK], tl.float32)
    for block in range(0, P, BLOCK_P):
        p = block + tl.arange(0, BLOCK_P)
        du = tl.zeros([CHUNK, BLOCK_P], tl.float32)
        for inner in range(0, N, BLOCK_N):
            n = inner + tl.arange(0, BLOCK_N)
            b_at = b + (first * G + group) * N
            b_rows = tl.load(b_at + row[:, None] * (G * N) + n[None, :], mask=live[:, None], other=0.0)
            ds = tl.load(gradients + here * P * N + (p[:, None] * N + n[None, :]))
            du = product(b_rows, tl.trans(ds), du, TYPE)
        place, at = (first * H + head) * P, row[:, None] * (H * P) + p[None, :]
        x_rows = tl.load(x + place + at, mask=live[:, None], other=0.0).to(tl.float32)
        dy_rows = tl.load(dy + place + at, mask=live[:, None], other=0.0)
        du = du * to_end[:, None]
        until_end += tl.sum(du * x_rows, 1)
        du = product(tl.trans(mixed), dy_rows, du, TYPE)
        dsteps += tl.sum(du * x_rows, 1)
        out = du * steps[:, None] + skip * dy_rows.to(tl.float32)
        tl.store(dx + place + at, out.to(dx.dtype.element_ty), mask=live[:, None])
    tl.store(rows + here * CHUNK + row, dsteps)
    tl.store(rows + ((B * H).to(tl.int64) * NT + here) * CHUNK + row, until_end * steps)


@triton.jit
def ssd_gate_gradients(
    dy, x, dt, a, c, scores, states, gradients, rows, ddt, weights, parts, B, T, H, G, P,
    N: tl.constexpr, CHUNK: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """ddt of one chunk and head; what the group's gradients need, (dY Uᵀ) ⊙ M; and this chunk's part of da and dd.
    Grid (NT, B·H)."""
    chunk, task = tl.program_id(0), tl.program_id(1)
    NT = tl.num_programs(0)
    batch, head = task // H, task % H
    group = head // (H // G)
    TYPE: tl.constexpr = x.dtype.element_ty
    row = tl.arange(0, CHUNK)
    live = chunk * CHUNK + row < T
    first = batch.to(tl.int64) * T + chunk * CHUNK
    here = task.to(tl.int64) * NT + chunk
    steps = tl.load(dt + first * H + head + row * H, mask=live, other=0.0).to(tl.float32)
    dw = tl.zeros([CHUNK, CHUNK], tl.float32)
    from_start = tl.zeros([CHUNK], tl.float32)
    dskip = tl.zeros([CHUNK], tl.float32)
    kept = tl.zeros([BLOCK_P], tl.float32)
    for block in range(0, P, BLOCK_P):
        p = block + tl.arange(0, BLOCK_P)
        read = tl.zeros([CHUNK, BLOCK_P], tl.float32)
        for inner in range(0, N, BLOCK_N):
            n = inner + tl.arange(0, BLOCK_N)
            matrix, cell = here * P * N, p[:, None] * N + n[None, :]
            s = tl.load(states + matrix + cell)
            kept += tl.sum(s.to(tl.float32) * tl.load(gradients + matrix + cell).to(tl.float32), 1)
            c_at = c + (first * G + group) * N
            c_rows = tl.load(c_at + row[:, None] * (G * N) + n[None, :], mask=live[:, None], other=0.0)
            read = product(c_rows, tl.trans(s), read, TYPE)
        place, at = (first * H + head) * P, row[:, None] * (H * P) + p[None, :]
        dy_rows = tl.load(dy + place + at, mask=live[:, None], other=0.0)
        x_rows = tl.load(x + place + at, mask=live[:, None], other=0.0).to(tl.float32)
        from_start += tl.sum(read * dy_rows.to(tl.float32), 1)
        dskip += tl.sum(x_rows * dy_rows.to(tl.float32), 1)
        dw = product(dy_rows, tl.trans(x_rows * steps[:, None]), dw, TYPE)

    rate = tl.load(a + head).to(tl.float32)
    between, since_start, _, end = scalar_decays(steps * rate, CHUNK)
    square = row[:, None] * CHUNK + row[None, :]
    dw = dw * between
    tl.store(weights + here * (CHUNK * CHUNK) + square, dw)
    scores += ((batch * G + group).to(tl.int64) * NT + chunk) * (CHUNK * CHUNK)
    pairs = tl.where(row[:, None] > row[None, :], dw * tl.load(scores + square), 0.0)
    tasks = (B * H).to(tl.int64) * NT
    until_end = tl.load(rows + (tasks + here) * CHUNK + row)
    dg = gate_gradient(pairs, from_start * since_start, until_end, tl.sum(kept, 0) * end, CHUNK)
    dsteps = tl.load(rows + here * CHUNK + row) + rate * dg
    tl.store(ddt + first * H + head + row * H, dsteps.to(ddt.dtype.element_ty), mask=live)
    tl.store(parts + here, tl.sum(dg * steps, 0))
    tl.store(parts + tasks + here, tl.sum(dskip, 0))


@triton.jit
def ssd_group_gradients(
    dy, x, dt, a, b, c, states, gradients, weights, db, dc, B, T, H, G, P,
    N: tl.constexpr, CHUNK: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """db and dc of one chunk, summed over the heads of a group in order. Grid (N / BLOCK_N, NT, B·G).
    dC = Σ (p ⊙ dY) S + W B, dB = Σ (r ⊙ U) dS + Wᵀ C, W the sum of the heads' weights."""
    chunk, task = tl.program_id(1), tl.program_id(2)
    NT = tl.num_programs(1)
    batch, group = task // G, task % G
    TYPE: tl.constexpr = x.dtype.element_ty
    row = tl.arange(0, CHUNK)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    live = chunk * CHUNK + row < T
    first = batch.to(tl.int64) * T + chunk * CHUNK
    square = row[:, None] * CHUNK + row[None, :]
    shared = H // G
    dc_rows = tl.zeros([CHUNK, BLOCK_N], tl.float32)
    db_rows = tl.zeros([CHUNK, BLOCK_N], tl.float32)
    for head in range(group * shared, (group + 1) * shared):
        steps = tl.load(dt + first * H + head + row * H, mask=live, other=0.0).to(tl.float32)
        rate = tl.load(a + head).to(tl.float32)
        since_start, _ = start_decays(steps * rate)
        to_end, _ = end_decays(steps * rate)
        here = (batch * H + head).to(tl.int64) * NT + chunk
        for block in range(0, P, BLOCK_P):
            p = block + tl.arange(0, BLOCK_P)
            matrix, cell = here * P * N, p[:, None] * N + n[None, :]
            place, at = (first * H + head) * P, row[:, None] * (H * P) + p[None, :]
            dy_rows = tl.load(dy + place + at, mask=live[:, None], other=0.0).to(tl.float32)
            dc_rows = product(dy_rows * since_start[:, None], tl.load(states + matrix + cell), dc_rows, TYPE)
            x_rows = tl.load(x + place + at, mask=live[:, None], other=0.0).to(tl.float32)
            db_rows = product(x_rows * (steps * to_end)[:, None], tl.load(gradients + matrix + cell), db_rows, TYPE)
    sum_weights = tl.zeros([CHUNK, CHUNK], tl.float32)
    for head in range(group * shared, (group + 1) * shared):
        sum_weights += tl.load(weights + ((batch * H + head).to(tl.int64) * NT + chunk) * (CHUNK * CHUNK) + square)
    place, at = (first * G + group) * N, row[:, None] * (G * N) + n[None, :]
    b_rows = tl.load(b + place + at, mask=live[:, None], other=0.0)
    dc_rows = product(sum_weights, b_rows, dc_rows, TYPE)
    tl.store(dc + place + at, dc_rows.to(dc.dtype.element_ty), mask=live[:, None])
    c_rows = tl.load(c + place + at, mask=live[:, None], other=0.0)
    db_rows = product(tl.trans(sum_weights), c_rows, db_rows, TYPE)
    tl.store(db + place + at, db_rows.to(db.dtype.element_ty), mask=live[:, None])


@triton.jit
def ssd_parameters(parts, da, dd, B, T, H, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    """da and dd: the sums of the chunks' parts, batch items and chunks in order. Grid (2, H)."""
    which, head = tl.program_id(0), tl.program_id(1)
    NT = tl.cdiv(T, CHUNK)
    total = tl.zeros([BLOCK], tl.float32)
    for batch in range(0, B):
        first = (which * B + batch).to(tl.int64) * H * NT + head * NT
        for block in range(0, NT, BLOCK):
            chunk = block + tl.arange(0, BLOCK)
            total += tl.load(parts + first + chunk, mask=chunk < NT, other=0.0)
    out = tl.sum(total, 0)
    if which == 0:
        tl.store(da + head, out.to(da.dtype.element_ty))
    else:
        tl.store(dd + head, out.to(dd.dtype.element_ty))


def _spec(fn, params, grid, sizes, warps, stages=1, options=None):
    """One kernel: its variants are N = 64 and 128 with `sizes` by dtype."""
    # bf16 loads of the next chunk start early; in f32 there are no registers for them.
    loads = {"bf16": {"STAGES": 2}, "f32": {"STAGES": 1}} if "STAGES" in fn.arg_names else {"bf16": {}, "f32": {}}
    variants = [
        {"dtype": dtype, "N": n, "CHUNK": 64, **sizes[dtype], **loads[dtype]}
        for n in (64, 128)
        for dtype in ("bf16", "f32")
    ]
    types = {name: "*T" for name in ("x", "b", "c", "y", "dy", "dx", "db", "dc", "states", "gradients")}
    types |= {name: "*f32" for name in ("dt", "a", "d", "ddt", "start", "last", "scores", "weights", "rows", "parts")}
    listed = {name: types.get(name, "i32") for name in params.split()}
    divisible = ("P",) if "P" in listed else ()
    # One number of each head, and of each program.
    scalars = tuple(name for name in ("a", "d", "parts") if name in listed)
    return Spec(fn, listed, variants, grid, divisible, lambda constants, _: warps[constants["dtype"]],
                stages, True, options or {}, scalars)  # fmt: skip


_TILES = {"bf16": {"BLOCK_P": 64, "BLOCK_N": 64}, "f32": {"BLOCK_P": 32, "BLOCK_N": 32}}
_EIGHT = {"bf16": 8, "f32": 8}
_FOUR = {"bf16": 4, "f32": 8}
SPECS = [
    _spec(
        ssd_scores, "b c scores B T G", "cdiv(T, CHUNK), B * G",
        {"bf16": {"BLOCK_N": 64}, "f32": {"BLOCK_N": 32}}, _FOUR,
    ),
    _spec(
        ssd_states, "x dt a b start states last B T H G P has_start", "cdiv(P, BLOCK_P), cdiv(N, BLOCK_N), B * H",
        {**_TILES, "f32": {"BLOCK_P": 64, "BLOCK_N": 32}}, _FOUR,
        # Without it, the compiler spills for sm_100 at 128 registers.
        options={"maxnreg": 255},
    ),
    _spec(
        ssd_output, "x dt a c d scores states y B T H G P", "cdiv(P, BLOCK_P), cdiv(T, CHUNK), B * H", _TILES, _FOUR, 2
    ),
    _spec(
        ssd_state_gradients, "dy dt a c gradients B T H G P", "cdiv(P, BLOCK_P), cdiv(N, BLOCK_N), B * H",
        {**_TILES, "f32": {"BLOCK_P": 32, "BLOCK_N": 64}}, _FOUR,
    ),
    _spec(
        ssd_value_gradients, "dy x dt a b d scores gradients dx rows B T H G P", "cdiv(T, CHUNK), B * H",
        _TILES, _EIGHT,
    ),
    _spec(
        ssd_gate_gradients, "dy x dt a c scores states gradients rows ddt weights parts B T H G P",
        "cdiv(T, CHUNK), B * H", {**_TILES, "bf16": {"BLOCK_P": 64, "BLOCK_N": 32}}, _EIGHT,
    ),
    _spec(
        ssd_group_gradients, "dy x dt a b c states gradients weights db dc B T H G P",
        "cdiv(N, BLOCK_N), cdiv(T, CHUNK), B * G", _TILES, _EIGHT,
    ),
    Spec(
        ssd_parameters, {"parts": "*f32", "da": "*f32", "dd": "*f32", "B": "i32", "T": "i32", "H": "i32"},
        [{"CHUNK": 64, "BLOCK": 128}], "2, H", aligned_only=True, scalars=("da", "dd"),
    ),
]  # fmt: skip
