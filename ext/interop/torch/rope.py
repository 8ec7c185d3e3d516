def rope(x, table, layout, dims):
    """Turns pairs of the first `dims` channels of x [batch, time, heads, head_dim] by the angles of a table."""
    turned, rest = wide(x[..., :dims]), x[..., dims:]
    cos, sin = (part.to(turned.dtype) for part in table)
    if layout == "interleaved":
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    else:
        a, b = turned.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return torch.cat([turned.to(x.dtype), rest], dim=-1)
