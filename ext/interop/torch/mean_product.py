def mean_product(a, b=None):
    """Σ ā ⊙ b̄ over channels, of the means over all tokens of a micro-batch; of ā alone without b. a, b [batch, time, …]."""
    a = wide(a).mean((0, 1))
    return (a if b is None else a * wide(b).mean((0, 1))).sum()
