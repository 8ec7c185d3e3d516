def chunks(*tensors):
    """Each tensor [batch, time, heads, …] in pieces of 16 tokens, [batch, heads, time, …] in f32."""
    return zip(*(wide(x).transpose(1, 2).split(16, dim=2) for x in tensors))
