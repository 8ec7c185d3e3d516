def mix_heads(x, weights, one):
    """Sums of heads: x [batch, time, n, d], weights [n, m] or [batch, time, n, m]; without m if there is `one` sum."""
    if one:
        return (weights.unsqueeze(-1) * x).sum(-2)
    return weights.transpose(-1, -2) @ x
