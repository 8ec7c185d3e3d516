def attention(q, k, v, window=None, past=None):
    """softmax(q kᵀ / sqrt(head_dim) + causal) v; query head j reads key-value head j // (heads / kv_heads).

    q [batch, time, heads, head_dim], k and v [batch, time, kv_heads, ·]. Returns y and the keys and values to keep.
    """
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if past is not None:
        k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
    time, seen = q.shape[1], k.shape[1]
    kept = (k, v) if window is None else (k[:, -window:], v[:, -window:])
    groups = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(groups, dim=2), v.repeat_interleave(groups, dim=2)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # [batch, heads, time, ·]
    if window is None and time == seen:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2), kept
    back = torch.arange(seen - time, seen, device=q.device)[:, None] - torch.arange(seen, device=q.device)
    visible = (back >= 0) & (back < (seen if window is None else window))  # [time, seen]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(1, 2), kept
