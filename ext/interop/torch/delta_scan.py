@without_autocast
def delta_scan(q, k, v, beta, g=None, scale=None, steps=1, past=None):
    """S ← e^g S, S ← S + k β (v - Sᵀ k)ᵀ, o = scale Sᵀ q, per head (Yang et al. 2024, eq. 10), by chunks in f32.

    In a chunk S_t = e^(g_1 + … + g_t) S_0 + Σ_s decay[t, s] k_s w_sᵀ, where w_s is what token s writes. Each w depends
    on those before it: a triangular system. Several steps a token are as many tokens: the first decays, the last is read.
    """
    # q, k [batch, time, heads, rows], v [batch, time, heads, columns], beta and g [batch, time, heads]
    dtype, time, scale = v.dtype, v.shape[1], q.shape[-1] ** -0.5 if scale is None else scale
    g = q.new_zeros(q.shape[:-1]) if g is None else g
    if steps > 1:
        q = F.pad(q.unsqueeze(2), (0, 0, 0, 0, steps - 1, 0)).flatten(1, 2)
        g = F.pad(g.unsqueeze(2), (0, 0, 0, steps - 1)).flatten(1, 2)
        k, v, beta = (x.unflatten(2, (steps, -1)).flatten(1, 2) for x in (k, v, beta))
    state = wide(v).new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if past is None else past
    q, k, v, beta, g = chunks(32, q, k, v, beta, g)
    decay = decays(g.unsqueeze(-1)).squeeze(-1)  # [batch, heads, chunk, t, s]
    carried, beta = g.cumsum(3).exp().unsqueeze(-1), beta.unsqueeze(-1)  # [batch, heads, chunk, t, 1]
    before = (beta * (k @ k.transpose(-1, -2)) * decay).tril(-1)
    kept, last = (k * decay[:, :, :, -1, :, None]).transpose(-1, -2), carried[:, :, :, -1:]
    # A chunk writes w = new - old S_0.
    both = torch.cat([beta * v, beta * carried * k], dim=-1)
    both = torch.linalg.solve_triangular(before, both, upper=False, unitriangular=True)
    new, old = both.split([v.shape[-1], k.shape[-1]], dim=-1)
    whole = last[:, :, :-1] * torch.eye(k.shape[-1], dtype=k.dtype, device=k.device) - (kept @ old)[:, :, :-1]
    state = states(torch.matmul, whole, (kept @ new)[:, :, :-1], state)  # before each chunk
    written = new - old @ state
    y = ((q @ k.transpose(-1, -2)) * decay) @ written + carried * (q @ state)
    y = y.flatten(2, 3).transpose(1, 2)[:, : time * steps][:, steps - 1 :: steps]
    return (scale * y).to(dtype), (last * state + kept @ written)[:, :, -1]
