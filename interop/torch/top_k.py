def top_k(scores, bias=None, *, count):
    """The largest scores + bias, equal ones by place: the scores and their places."""
    ranked = scores if bias is None else wide(scores) + wide(bias)
    ids = ranked.sort(dim=-1, descending=True, stable=True).indices[..., :count]
    return scores.gather(-1, ids), ids
