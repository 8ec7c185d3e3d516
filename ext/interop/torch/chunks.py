def chunks(size, *tensors):
    """Each tensor [batch, time, heads, …] as [batch, heads, chunk, time, …] in f32, zeros after the last token."""
    size = min(size, tensors[0].shape[1])
    pad = -tensors[0].shape[1] % size
    for x in tensors:
        x = F.pad(wide(x).transpose(1, 2), (0, 0) * (x.dim() - 3) + (0, pad))
        yield x.unflatten(2, (-1, size))
