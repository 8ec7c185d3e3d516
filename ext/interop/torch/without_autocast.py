def without_autocast(function):
    """The function outside `torch.autocast`, which would compute its products in bf16."""

    def run(x, *rest, **named):
        with torch.autocast(x.device.type, enabled=False):
            return function(x, *rest, **named)

    return run
