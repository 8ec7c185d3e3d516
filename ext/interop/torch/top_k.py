def top_k(scores, *extra, count, bias=False):
    """The largest scores, equal ones by place: the scores and their places. `extra` is a bias that only chooses."""
    ranked = wide(scores) + wide(extra[0]) if bias else scores
    ids = ranked.sort(dim=-1, descending=True, stable=True).indices[..., :count]
    return scores.gather(-1, ids), ids
