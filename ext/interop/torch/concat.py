def concat(*parts):
    """The channels of all parts, in order."""
    return torch.cat(parts, dim=-1)
