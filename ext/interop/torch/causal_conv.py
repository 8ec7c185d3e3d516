def causal_conv(x, weight, kernel, past):
    """Σ_j weight[:, j] x[t - (kernel - 1) + j], zeros before the sequence. Returns y and the inputs to keep."""
    # x [batch, time, channels], weight [channels, kernel], past [batch, kernel - 1, channels]
    if past is None:
        past = x.new_zeros(x.shape[0], kernel - 1, x.shape[2])
    x = torch.cat([past.to(x.dtype), x], dim=1)
    y = F.conv1d(x.transpose(1, 2), weight[:, None, :].to(x.dtype), groups=x.shape[2]).transpose(1, 2)
    return y, x[:, x.shape[1] - (kernel - 1) :]
