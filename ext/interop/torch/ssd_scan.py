@without_autocast
def ssd_scan(x, dt, a, b, c, d, past=None):
    """S ← e^(dt a) S + dt x bᵀ, y = S c + d x, per head (Dao and Gu 2024, section 7), by chunks in f32."""
    # x [batch, time, heads, p], dt [batch, time, heads], a and d [heads], b and c [batch, time, groups, n]
    dtype, time, (a, d) = x.dtype, x.shape[1], (wide(a)[:, None, None], wide(d)[:, None, None, None])
    groups = x.shape[2] // b.shape[2]
    b, c = b.repeat_interleave(groups, dim=2), c.repeat_interleave(groups, dim=2)
    state = wide(x).new_zeros(*x.shape[:1], *x.shape[2:], b.shape[-1]) if past is None else past
    x, dt, b, c = chunks(64, x, dt, b, c)
    g, written = dt * a, dt.unsqueeze(-1) * x
    decay = decays(g.unsqueeze(-1)).squeeze(-1)  # [batch, heads, chunk, t, s]
    carried = g.cumsum(3).exp().unsqueeze(-1)  # [batch, heads, chunk, t, 1]
    scores = (c @ b.transpose(-1, -2)) * decay
    added = (written * decay[:, :, :, -1, :, None]).transpose(-1, -2) @ b
    state = states(torch.mul, carried[:, :, :, -1:], added, state)
    y = scores @ written + carried * (c @ state[:, :, :-1].transpose(-1, -2)) + d * x
    return y.flatten(2, 3)[:, :, :time].transpose(1, 2).to(dtype), state[:, :, -1]
