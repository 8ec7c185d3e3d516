def one_hot(ids, width):
    """1 at the ids, 0 elsewhere: [batch, time, k] to [batch, time, width]."""
    return F.one_hot(ids, width).sum(-2).float()
