def decays(g):
    """exp of the sum of g over the tokens after s up to t, 0 where s > t: [batch, heads, chunk, t, s, rows].

    g [batch, heads, chunk, time, rows]. Sums are never subtracted from each other, so no gate is too strong.
    """
    causal = torch.ones(g.shape[3], g.shape[3], dtype=torch.bool, device=g.device).tril()  # [t, s]
    sums = torch.where(causal.tril(-1).unsqueeze(-1), g.unsqueeze(4), 0.0).cumsum(3)
    return torch.where(causal.unsqueeze(-1), sums.exp(), 0.0)
