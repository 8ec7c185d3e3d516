def embed(tokens, weight):
    """Row `token` of a [vocab, dim] table."""
    return F.embedding(tokens, weight)
