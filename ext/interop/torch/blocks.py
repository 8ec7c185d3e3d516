def blocks(q, k, v, window):
    """Each `window` queries with the keys and values that they can see: [batch · block, heads, ·, ·], and their places.

    q [batch, heads, time, ·] are the last of k and v [batch, heads, seen, ·]; places before the first key are negative.
    """
    count, before = -(-q.shape[2] // window), k.shape[2] - q.shape[2]
    fill = count * window - q.shape[2]
    q = F.pad(q, (0, 0, 0, fill)).unflatten(2, (count, window))
    # One block more: the keys before the first query.
    skip = max(before - window, 0)
    k, v = (F.pad(x[:, :, skip:], (0, 0, window - before + skip, fill)).unflatten(2, (count + 1, window)) for x in (k, v))
    k, v = (torch.cat([x[:, :, :-1], x[:, :, 1:]], dim=3) for x in (k, v))
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    block = torch.arange(count, device=q.device)[:, None] * window + before
    return q, k, v, block + torch.arange(window, device=q.device), block + torch.arange(-window, window, device=q.device)
