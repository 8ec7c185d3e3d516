def l2_norm(x, eps):
    """x / sqrt(sum(x²) + eps) over the last axis, in f32."""
    y = wide(x)
    return (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + eps)).to(x.dtype)
