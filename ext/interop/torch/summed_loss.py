def summed_loss(logits, targets, nll_square, z_loss):
    """Σ nll + nll_square · nll² + z_loss · lse² over the targets [tokens] that count; logits [tokens, vocab], -100 is not counted."""
    logits = wide(logits)
    lse = logits.logsumexp(-1)
    nll = lse - logits.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    loss = nll
    if nll_square:
        loss = loss + nll_square * nll.square()
    if z_loss:
        loss = loss + z_loss * lse.square()
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    return torch.where(targets != -100, loss, 0.0).sum(dtype=exact)
