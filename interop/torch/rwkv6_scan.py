@without_autocast
def rwkv6_scan(r, k, v, g, u, past=None):
    """o = (S + diag(u) k vᵀ)ᵀ r, then S ← diag(exp g) S + k vᵀ, per head (Peng et al. 2024, section 4), by chunks."""
    # r, k, g [batch, time, heads, rows], v [batch, time, heads, columns], u [heads, rows]
    dtype, bonus = v.dtype, wide(u)[:, None]
    state = wide(v).new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if past is None else past
    outputs = []
    for r, k, v, g in chunks(r, k, v, g):
        decay, carried = decays(g), g.cumsum(2).exp()  # [batch, heads, t, s, rows], [batch, heads, t, rows]
        # Each token reads the state before its own step: everything is one token late.
        late = F.pad(decay[:, :, :-1], (0, 0, 0, 0, 1, 0))
        start = F.pad(carried[:, :, :-1], (0, 0, 1, 0), value=1.0)
        scores = torch.einsum("bhtd,bhsd,bhtsd->bhts", r, k, late)
        own = (r * bonus * k).sum(-1, keepdim=True)
        outputs.append(scores @ v + own * v + (r * start) @ state)
        state = carried[:, :, -1, :, None] * state + (k * decay[:, :, -1]).transpose(-1, -2) @ v
    return torch.cat(outputs, dim=2).transpose(1, 2).to(dtype), state
