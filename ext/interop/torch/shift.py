def shift(x, past=None):
    """The token before, zeros before the first. x [batch, time, channels]."""
    first = x.new_zeros(x.shape[0], 1, x.shape[2]) if past is None else past
    both = torch.cat([first, x], dim=1)
    return both[:, :-1], both[:, -1:]
