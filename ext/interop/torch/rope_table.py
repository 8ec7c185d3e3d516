def rope_table(position, like, theta, dims, scaling="none", **settings):
    """cos and sin [time, 1, dims / 2] of (position + t) · theta^(-2i / dims), or of the rates of a scaling.

    `like` [batch, time] gives device and time. Angles are in f64, since in f32 they are off by 0.01 at 100,000 tokens.
    """
    exact = torch.float32 if like.device.type == "mps" else torch.float64
    rate = theta ** (-torch.arange(0, dims, 2, device=like.device, dtype=exact) / dims)
    rate, size = (rate, 1.0) if scaling == "none" else scaled_rates(rate, theta, dims, scaling, **settings)
    angle = torch.arange(position, position + like.shape[1], device=like.device, dtype=exact)[:, None, None] * rate
    return size * angle.cos(), size * angle.sin()
