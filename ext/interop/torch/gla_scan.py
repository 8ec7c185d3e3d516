@without_autocast
def gla_scan(q, k, v, g, scale=None, past=None):
    """S ← diag(exp g) S + k vᵀ, o = scale Sᵀ q, per head (Yang et al. 2023, eq. 3), by chunks in f32."""
    # q, k, g [batch, time, heads, rows], v [batch, time, heads, columns], S [batch, heads, rows, columns]
    dtype, time, scale = v.dtype, v.shape[1], q.shape[-1] ** -0.5 if scale is None else scale
    state = wide(v).new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if past is None else past
    if g.dim() < q.dim():
        g = g.expand(q.shape[:-1]).unsqueeze(-1).expand(q.shape)  # one gate for a head
    q, k, v, g = chunks(16, q, k, v, g)
    decay, carried = decays(g), g.cumsum(3).exp()  # [batch, heads, chunk, t, s, rows], [batch, heads, chunk, t, rows]
    scores = torch.einsum("bhctd,bhcsd,bhctsd->bhcts", q, k, decay)
    whole, added = carried[:, :, :, -1, :, None], (k * decay[:, :, :, -1]).transpose(-1, -2) @ v
    state = states(torch.mul, whole, added, state)
    y = scores @ v + (q * carried) @ state[:, :, :-1]
    return (scale * y.flatten(2, 3)[:, :, :time].transpose(1, 2)).to(dtype), state[:, :, -1]
