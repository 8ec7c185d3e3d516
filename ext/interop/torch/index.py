def index(count, like):
    """0, 1, …, count - 1, on the device of `like`."""
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return torch.arange(count, device=like.device, dtype=dtype)
