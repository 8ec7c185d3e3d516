@without_autocast
def rwkv6_scan(r, k, v, g, u, past=None):
    """o = (S + diag(u) k vᵀ)ᵀ r, then S ← diag(exp g) S + k vᵀ, per head (Peng et al. 2024, section 4), by chunks."""
    # r, k, g [batch, time, heads, rows], v [batch, time, heads, columns], u [heads, rows]
    dtype, time, bonus = v.dtype, v.shape[1], wide(u)[:, None, None]
    state = wide(v).new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if past is None else past
    r, k, v, g = chunks(16, r, k, v, g)
    decay, carried = decays(g), g.cumsum(3).exp()  # [batch, heads, chunk, t, s, rows], [batch, heads, chunk, t, rows]
    # Each token reads the state before its own step: everything is one token late.
    late = F.pad(decay[:, :, :, :-1], (0, 0, 0, 0, 1, 0))
    start = F.pad(carried[:, :, :, :-1], (0, 0, 1, 0), value=1.0)
    scores = torch.einsum("bhctd,bhcsd,bhctsd->bhcts", r, k, late)
    whole, added = carried[:, :, :, -1, :, None], (k * decay[:, :, :, -1]).transpose(-1, -2) @ v
    state = states(torch.mul, whole, added, state)
    y = scores @ v + (r * bonus * k).sum(-1, keepdim=True) * v + (r * start) @ state[:, :, :-1]
    return y.flatten(2, 3)[:, :, :time].transpose(1, 2).to(dtype), state[:, :, -1]
