def scaled_rates(rate, theta, dims, scaling, factor, original=None, length=None, low=1.0, high=4.0, truncate=True,
                 mscale=1.0, mscale_all=0.0):
    """The rates of RoPE for sequences longer by `factor` than `original`, and a factor of cos and sin."""
    if scaling == "interpolated":
        return rate / factor, 1.0
    if scaling == "ntk":
        stretched = factor * max(length, original) / original - (factor - 1)
        return rate ** (1 + math.log(stretched) / math.log(theta) * dims / (dims - 2)), 1.0
    if scaling == "llama3":
        kept = ((original * rate / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        return rate * (kept + (1 - kept) / factor), 1.0
    # YaRN: a ramp between the channels with 32 turns and with 1.
    first, last = (dims * math.log(original / (2 * math.pi * turns)) / (2 * math.log(theta)) for turns in (32, 1))
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    last = last + 0.001 if first == last else last
    pairs = torch.arange(dims // 2, device=rate.device, dtype=rate.dtype)
    kept = 1 - ((pairs - first) / (last - first)).clamp(0, 1)
    size = (0.1 * mscale * math.log(factor) + 1) / (0.1 * mscale_all * math.log(factor) + 1)
    return rate * (kept + (1 - kept) / factor), size
