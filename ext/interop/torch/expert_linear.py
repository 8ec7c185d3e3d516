def expert_linear(x, ids, weight, bias=None):
    """x W_eᵀ (+ b_e) for each id e of a token, W [experts, out, in].

    x [batch, time, in] or [batch, time, k, in], ids [batch, time, k]. Returns [batch, time, k, out]; every pair is computed.
    """
    x = x.to(weight.dtype)
    if x.dim() == ids.dim():
        x = x.unsqueeze(-2).expand(*ids.shape, x.shape[-1])
    # One product for groups of pairs, whose sizes stay on the device: of bf16, in rows of 16 bytes.
    grouped = weight.dtype == torch.bfloat16 and hasattr(F, "grouped_mm") and weight.shape[1] % 8 == weight.shape[2] % 8 == 0
    if torch.compiler.is_compiling() and not grouped:
        # How many pairs an expert has is not known to a graph: every expert for every pair.
        chosen = F.one_hot(ids, weight.shape[0]).to(x.dtype)
        y = torch.einsum("...ke,...ki,eoi->...ko", chosen, x, weight)
        return y if bias is None else y + F.embedding(ids, bias)
    order = ids.flatten().argsort(stable=True)  # pairs by expert
    x, experts = x.flatten(0, -2)[order], torch.arange(weight.shape[0], device=ids.device)
    if grouped:
        ends = (ids.flatten().unsqueeze(-1) <= experts).sum(0, dtype=torch.int32)  # of each expert's pairs
        y = F.grouped_mm(x, weight.transpose(1, 2), offs=ends)
        y = y if bias is None else y + F.embedding(ids.flatten()[order], bias)
    else:
        counts = torch.bincount(ids.flatten(), minlength=weight.shape[0]).tolist()
        biases = [None] * len(counts) if bias is None else bias
        y = torch.cat([F.linear(piece, w, b) for piece, w, b in zip(x.split(counts), weight, biases)])
    return y[order.argsort()].unflatten(0, ids.shape)
