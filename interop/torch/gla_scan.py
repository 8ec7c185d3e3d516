@without_autocast
def gla_scan(q, k, v, g, scale=None, past=None):
    """S ← diag(exp g) S + k vᵀ, o = scale Sᵀ q, per head (Yang et al. 2023, eq. 3), by chunks in f32."""
    # q, k, g [batch, time, heads, rows], v [batch, time, heads, columns], S [batch, heads, rows, columns]
    dtype, scale = v.dtype, q.shape[-1] ** -0.5 if scale is None else scale
    state = wide(v).new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if past is None else past
    if g.dim() < q.dim():
        g = g.expand(q.shape[:-1]).unsqueeze(-1).expand(q.shape)  # one gate for a head
    outputs = []
    for q, k, v, g in chunks(q, k, v, g):
        decay, carried = decays(g), g.cumsum(2).exp()  # [batch, heads, t, s, rows], [batch, heads, t, rows]
        scores = torch.einsum("bhtd,bhsd,bhtsd->bhts", q, k, decay)
        outputs.append(scores @ v + (q * carried) @ state)
        state = carried[:, :, -1, :, None] * state + (k * decay[:, :, -1]).transpose(-1, -2) @ v
    return (scale * torch.cat(outputs, dim=2).transpose(1, 2)).to(dtype), state
