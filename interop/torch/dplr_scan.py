@without_autocast
def dplr_scan(q, k, v, a, b, g, scale=None, past=None):
    """S ← diag(exp g) S + b (Sᵀ a)ᵀ + k vᵀ, o = scale Sᵀ q, per head (Peng et al. 2025, section 3), by chunks in f32.

    With w_t = S_(t-1)ᵀ a_t, a token writes k vᵀ + b wᵀ. Each w depends on those before it: a triangular system.
    """
    # q, k, a, b, g [batch, time, heads, rows], v [batch, time, heads, columns]
    dtype, scale = v.dtype, q.shape[-1] ** -0.5 if scale is None else scale
    state = wide(v).new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if past is None else past
    pairs = "bhtd,bhsd,bhtsd->bhts"
    outputs = []
    for q, k, v, a, b, g in chunks(q, k, v, a, b, g):
        decay, carried = decays(g), g.cumsum(2).exp()  # [batch, heads, t, s, rows], [batch, heads, t, rows]
        # a reads the state before its own step: everything is one token late.
        late = F.pad(decay[:, :, :-1], (0, 0, 0, 0, 1, 0))
        start = F.pad(carried[:, :, :-1], (0, 0, 1, 0), value=1.0)
        new = torch.einsum(pairs, a, k, late) @ v + (a * start) @ state
        before = -torch.einsum(pairs, a, b, late)
        w = torch.linalg.solve_triangular(before, new, upper=False, unitriangular=True)
        read = torch.einsum(pairs, q, k, decay) @ v + torch.einsum(pairs, q, b, decay) @ w
        outputs.append(read + (q * carried) @ state)
        last = decay[:, :, -1]  # [batch, heads, s, rows]
        written = (k * last).transpose(-1, -2) @ v + (b * last).transpose(-1, -2) @ w
        state = carried[:, :, -1, :, None] * state + written
    return (scale * torch.cat(outputs, dim=2).transpose(1, 2)).to(dtype), state
