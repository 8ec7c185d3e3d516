def gelu(x, approximate):
    """x Φ(x), or its tanh approximation."""
    return F.gelu(x, approximate="tanh" if approximate else "none")
