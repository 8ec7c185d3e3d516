def spread(a, x, kept, width):
    """A value of each head in all its channels: a […, h] to […, h, width]; if `kept`, a […, 1] to […, width]."""
    a = a if kept else a.unsqueeze(-1)
    return a.expand(*a.shape[:-1], width)
