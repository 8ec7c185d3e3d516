def attention(q, k, v, *extra, window=None, scale=None, softcap=None, sink=False, slopes=False, past=None):
    """softmax(scale · q kᵀ + causal) v; query head j reads key-value head j // (heads / kv_heads).

    q [batch, time, heads, head_dim], k and v [batch, time, kv_heads, ·]. `softcap` bounds the scores; `extra` are the
    sink, a score of each head without a value, and the slopes that lower scores by distance, both [heads]. Returns y and
    the keys and values to keep.
    """
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if past is not None:
        k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
    batch, time, seen = q.shape[0], q.shape[1], k.shape[1]
    kept = (k, v) if window is None else (k[:, -window:], v[:, -window:])
    groups = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # [batch, heads, time, ·]
    shared = {} if groups == 1 else {"enable_gqa": True}
    plain = softcap is None and len(extra) == 0
    if plain and window is None and time == seen:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, **shared).transpose(1, 2), kept
    if window is not None and time > window:
        q, k, v, at, to = blocks(q, k, v, window)
    else:
        at, to = torch.arange(seen - time, seen, device=q.device), torch.arange(seen, device=q.device)
    back = at.unsqueeze(-1) - to.unsqueeze(-2)
    visible = (back >= 0) & (back < (seen if window is None else window)) & (to >= 0).unsqueeze(-2)  # […, time, seen]
    if visible.dim() == 3:
        back, visible = back.repeat(batch, 1, 1).unsqueeze(1), visible.repeat(batch, 1, 1).unsqueeze(1)
    if plain:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=scale, **shared)
    else:
        # Query heads of one key head side by side: [batch, kv_heads, group · time, ·].
        q = wide(q).unflatten(1, (-1, groups)).flatten(2, 3)
        scores = (q @ wide(k).transpose(-1, -2)).unflatten(2, (groups, -1)).flatten(1, 2)
        scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        extra = [wide(each)[:, None, None] for each in extra]  # [heads, 1, 1]
        if slopes:
            scores = scores - extra.pop() * back
        scores = scores.masked_fill(~visible, float("-inf"))
        if sink:
            scores = torch.cat([scores, extra.pop().expand(*scores.shape[:-1], 1)], dim=-1)
        p = scores.softmax(-1)[..., : k.shape[2]].to(dtype)
        y = (p.unflatten(1, (-1, groups)).flatten(2, 3) @ v).unflatten(2, (groups, -1)).flatten(1, 2)
    y = y.transpose(1, 2)  # [batch, time, heads, ·], or [batch · block, …]
    return y.unflatten(0, (batch, -1)).flatten(1, 2)[:, :time], kept
