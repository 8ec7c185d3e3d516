def linear(x, weight, bias=None):
    """x Wᵀ (+ b), W [out, in]."""
    return F.linear(x.to(weight.dtype), weight, bias)
