def short_conv(x, weight, bias=None, *, kernel, past=None):
    """Depthwise causal convolution over time, without residual."""
    y, kept = causal_conv(x, weight, kernel, past)
    return (y if bias is None else y + bias.to(y.dtype)), kept
