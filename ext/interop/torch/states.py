def states(product, a, u, state):
    """The states before and after each of S ← a S + u: [batch, heads, chunk + 1, …] from a and u [batch, heads, chunk, …].

    Two steps are one with (a' a, a' u + u'): half as many pairs give every other state, and those the ones between.
    """
    if a.shape[2] == 0:
        return state.unsqueeze(2)
    pairs = a.shape[2] // 2
    first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    both = product(a[:, :, second], a[:, :, first])
    even = states(product, both, product(a[:, :, second], u[:, :, first]) + u[:, :, second], state)
    odd = product(a[:, :, ::2], even[:, :, : a.shape[2] - pairs]) + u[:, :, ::2]
    merged = torch.stack([even[:, :, : odd.shape[2]], odd], dim=3).flatten(2, 3)
    return torch.cat([merged, even[:, :, odd.shape[2] :]], dim=2)
