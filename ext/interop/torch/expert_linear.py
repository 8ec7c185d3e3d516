def expert_linear(x, ids, weight, bias=None):
    """x W_eᵀ (+ b_e) for each id e of a token, W [experts, out, in].

    x [batch, time, in] or [batch, time, k, in], ids [batch, time, k]. Returns [batch, time, k, out]; every pair is computed.
    """
    x = x.to(weight.dtype)
    if x.dim() == ids.dim():
        x = x.unsqueeze(-2).expand(*ids.shape, x.shape[-1])
    if torch.compiler.is_compiling():
        # How many pairs an expert has is not known to a graph: every expert for every pair.
        chosen = F.one_hot(ids, weight.shape[0]).to(x.dtype)
        y = torch.einsum("...ke,...ki,eoi->...ko", chosen, x, weight)
        return y if bias is None else y + F.embedding(ids, bias)
    order = ids.flatten().argsort(stable=True)  # pairs by expert
    counts = torch.bincount(ids.flatten(), minlength=weight.shape[0]).tolist()
    pieces = x.flatten(0, -2)[order].split(counts)
    y = torch.cat([F.linear(piece, w, None if bias is None else bias[e]) for e, (piece, w) in enumerate(zip(pieces, weight))])
    return y[order.argsort()].unflatten(0, ids.shape)
