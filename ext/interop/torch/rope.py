def rope(x, theta, layout, dims, position, scaling="none", **settings):
    """Turns pairs of the first `dims` channels by (position + t) · theta^(-2i / dims), or by the rates of a scaling."""
    # x [batch, time, heads, head_dim]; angles are in f64, since in f32 they are off by 0.01 at 100,000 tokens.
    exact = torch.float32 if x.device.type == "mps" else torch.float64
    rate = theta ** (-torch.arange(0, dims, 2, device=x.device, dtype=exact) / dims)
    rate, size = (rate, 1.0) if scaling == "none" else scaled_rates(rate, theta, dims, scaling, **settings)
    angle = torch.arange(position, position + x.shape[1], device=x.device, dtype=exact)[:, None, None] * rate
    turned, rest = wide(x[..., :dims]), x[..., dims:]
    cos, sin = (size * angle.cos()).to(turned.dtype), (size * angle.sin()).to(turned.dtype)  # [time, 1, dims / 2]
    if layout == "interleaved":
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    else:
        a, b = turned.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return torch.cat([turned.to(x.dtype), rest], dim=-1)
