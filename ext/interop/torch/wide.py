def wide(x):
    """x in f32, or in f64 if it is that."""
    return x if x.dtype == torch.float64 else x.float()
