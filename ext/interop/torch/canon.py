def canon(x, weight, kernel, activation, residual, past=None):
    """x + act(depthwise causal convolution of x over time) (Physics of Language Models 4.1, section 3)."""
    y, kept = causal_conv(x, weight, kernel, past)
    y = F.silu(y) if activation == "silu" else y
    return (x + y if residual else y), kept
