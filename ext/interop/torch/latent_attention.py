def latent_attention(q, c, k, weight, *, value_dim, scale=None, past=None):
    """Attention with keys and values weight · c for each head, and k after the keys of every head.

    q [batch, time, heads, nope + rope], c [batch, time, rank], k [batch, time, 1, rope]. Returns y and the c and k to keep.
    """
    if past is not None:
        c, k = torch.cat([past[0], c], dim=1), torch.cat([past[1], k], dim=1)
    heads, time, seen = q.shape[2], q.shape[1], c.shape[1]
    expanded = F.linear(c.to(weight.dtype), weight).unflatten(-1, (heads, -1))
    nope, v = expanded.split([expanded.shape[-1] - value_dim, value_dim], dim=-1)
    keys = torch.cat([nope, k.to(nope.dtype).expand(-1, -1, heads, -1)], dim=-1)
    q, keys, v = q.to(nope.dtype).transpose(1, 2), keys.transpose(1, 2), v.transpose(1, 2)  # [batch, heads, time, ·]
    back = torch.arange(seen - time, seen, device=q.device)[:, None] - torch.arange(seen, device=q.device)
    y = F.scaled_dot_product_attention(q, keys, v, attn_mask=back >= 0, scale=scale)
    return y.transpose(1, 2), (c, k)
