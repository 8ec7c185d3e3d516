def expert_linear(x, ids, weight, bias=None):
    """x W_eᵀ (+ b_e) for each id e of a token, W [experts, out, in].

    x [batch, time, in] or [batch, time, k, in], ids [batch, time, k]. Returns [batch, time, k, out]; every pair is computed.
    """
    x = x.to(weight.dtype)
    if x.dim() == ids.dim():
        x = x.unsqueeze(-2).expand(*ids.shape, x.shape[-1])
    order = ids.flatten().argsort(stable=True)  # pairs by expert
    counts = torch.bincount(ids.flatten(), minlength=weight.shape[0]).tolist()
    pieces = x.flatten(0, -2)[order].split(counts)
    y = torch.cat([F.linear(piece, w, None if bias is None else bias[e]) for e, (piece, w) in enumerate(zip(pieces, weight))])
    return y[order.argsort()].unflatten(0, ids.shape)
