def decays(g):
    """exp of the sum of g over the tokens after s up to t, 0 where s > t: [batch, heads, t, s, rows].

    g [batch, heads, time, rows]. Sums are never subtracted from each other, so no gate is too strong.
    """
    seen = torch.ones(g.shape[2], g.shape[2], dtype=torch.bool, device=g.device).tril()  # [t, s]
    sums = torch.where(seen.tril(-1).unsqueeze(-1), g.unsqueeze(3), 0.0).cumsum(2)
    return torch.where(seen.unsqueeze(-1), sums.exp(), 0.0)
