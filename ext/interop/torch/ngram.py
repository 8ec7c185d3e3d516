def ngram(tokens, weight, order, past=None):
    """Row hash(last `order` tokens) of a [rows, dim] table, zeros where there are fewer. `past` has ids plus 1, or 0."""
    if past is None:
        past = tokens.new_zeros(tokens.shape[0], order - 1)
    seen = torch.cat([past, tokens + 1], dim=1)
    windows = seen.unfold(1, order, 1)
    # FNV-1a in 64 bits: int64 wraps as uint64 does, and shifts are masked to be without a sign.
    hashed = torch.full_like(tokens, 0xCBF29CE484222325 - (1 << 64)) ^ order
    for token in (windows - 1).unbind(-1):
        hashed = (hashed ^ token) * 0x100000001B3
    hashed = hashed ^ (hashed >> 32 & 0xFFFFFFFF)
    rows = weight.shape[0]
    rest = ((hashed >> 1 & 0x7FFFFFFFFFFFFFFF) % rows * 2 + (hashed & 1)) % rows
    whole = (windows > 0).all(-1)
    found = F.embedding(torch.where(whole, rest, 0), weight) * whole.unsqueeze(-1).to(weight.dtype)
    return found, seen[:, seen.shape[1] - (order - 1) :]
