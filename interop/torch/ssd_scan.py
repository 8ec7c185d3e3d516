@without_autocast
def ssd_scan(x, dt, a, b, c, d, past=None):
    """S ← e^(dt a) S + dt x bᵀ, y = S c + d x, per head (Dao and Gu 2024, section 7), by chunks in f32."""
    # x [batch, time, heads, p], dt [batch, time, heads], a and d [heads], b and c [batch, time, groups, n]
    dtype, (a, d) = x.dtype, (wide(a), wide(d)[:, None, None])
    groups = x.shape[2] // b.shape[2]
    b, c = b.repeat_interleave(groups, dim=2), c.repeat_interleave(groups, dim=2)
    state = wide(x).new_zeros(*x.shape[:1], *x.shape[2:], b.shape[-1]) if past is None else past
    outputs = []
    for x, dt, b, c in chunks(x, dt, b, c):
        g, written = dt * a[:, None], dt.unsqueeze(-1) * x
        decay = decays(g.unsqueeze(-1)).squeeze(-1)  # [batch, heads, t, s]
        carried = g.cumsum(2).exp().unsqueeze(-1)  # [batch, heads, t, 1]
        scores = (c @ b.transpose(-1, -2)) * decay
        outputs.append(scores @ written + carried * (c @ state.transpose(-1, -2)) + d * x)
        state = carried[:, :, -1:] * state + (written * decay[:, :, -1, :, None]).transpose(-1, -2) @ b
    return torch.cat(outputs, dim=2).transpose(1, 2).to(dtype), state
