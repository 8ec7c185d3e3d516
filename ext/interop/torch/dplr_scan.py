@without_autocast
def dplr_scan(q, k, v, a, b, g, scale=None, past=None):
    """S ← diag(exp g) S + b (Sᵀ a)ᵀ + k vᵀ, o = scale Sᵀ q, per head (Peng et al. 2025, section 3), by chunks in f32.

    With w_t = S_(t-1)ᵀ a_t, a token writes k vᵀ + b wᵀ. Each w depends on those before it: a triangular system.
    """
    # q, k, a, b, g [batch, time, heads, rows], v [batch, time, heads, columns]
    dtype, time, scale = v.dtype, v.shape[1], q.shape[-1] ** -0.5 if scale is None else scale
    state = wide(v).new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if past is None else past
    q, k, v, a, b, g = chunks(16, q, k, v, a, b, g)
    decay, carried = decays(g), g.cumsum(3).exp()  # [batch, heads, chunk, t, s, rows], [batch, heads, chunk, t, rows]
    # a reads the state before its own step: everything is one token late.
    late = F.pad(decay[:, :, :, :-1], (0, 0, 0, 0, 1, 0))
    start = F.pad(carried[:, :, :, :-1], (0, 0, 1, 0), value=1.0)
    pairs = "bhctd,bhcsd,bhctsd->bhcts"
    before = -torch.einsum(pairs, a, b, late)
    # A chunk has w = new + old S_0.
    both = torch.cat([torch.einsum(pairs, a, k, late) @ v, a * start], dim=-1)
    both = torch.linalg.solve_triangular(before, both, upper=False, unitriangular=True)
    new, old = both.split([v.shape[-1], a.shape[-1]], dim=-1)
    last = decay[:, :, :, -1]  # [batch, heads, chunk, s, rows]
    kept, turned = (k * last).transpose(-1, -2), (b * last).transpose(-1, -2)
    whole = torch.diag_embed(carried[:, :, :, -1]) + turned @ old
    state = states(torch.matmul, whole[:, :, :-1], (kept @ v + turned @ new)[:, :, :-1], state)  # before each chunk
    w = new + old @ state
    y = torch.einsum(pairs, q, k, decay) @ v + torch.einsum(pairs, q, b, decay) @ w + (q * carried) @ state
    state = carried[:, :, -1, -1, :, None] * state[:, :, -1] + (kept @ v + turned @ w)[:, :, -1]
    return (scale * y.flatten(2, 3)[:, :, :time].transpose(1, 2)).to(dtype), state
