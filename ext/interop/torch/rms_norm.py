def rms_norm(x, weight, eps):
    """weight · x / sqrt(mean(x²) + eps) over the last axis, in f32."""
    y = wide(x)
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * wide(weight)).to(x.dtype)
