def keyed_dropout(x, rate, key, windows):
    """x with canonc's elements dropped and the others divided by 1 - rate: equal for any ranks and micro-batches.

    x [batch, time, …], key [2] of the call, windows [batch], the number of each row's window: Philox4x32-10 (Salmon et
    al. 2011), word e of window w for its element e.
    """
    count, low = x[0].numel(), 0xFFFFFFFF
    block = torch.arange((count + 3) // 4, device=x.device)  # [n]
    windows = windows[:, None]  # [batch, 1]
    counter = [block & low, block >> 32 & low, windows & low, windows >> 32 & low]
    first, second = key.unbind()
    for _ in range(10):
        # int64 wraps as uint64 does.
        left, right = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [(right >> 32 & low) ^ counter[1] ^ first, right & low, (left >> 32 & low) ^ counter[3] ^ second, left & low]
        first, second = first + 0x9E3779B9 & low, second + 0xBB67AE85 & low
    words = torch.stack(torch.broadcast_tensors(*counter), dim=-1).flatten(1)[:, :count]
    dropped = (words < round(rate * 2**32)).view(x.shape)
    return (wide(x) * (1 / (1 - rate))).to(x.dtype).masked_fill(dropped, 0.0)
