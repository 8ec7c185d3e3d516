"""Times a training step of a model with flash-linear-attention's layers, for `canonc selftest`.

The options are the sizes of the model. It prints one line of JSON: {"step_s": seconds}, the median, or
{"missing": package} if a package is not installed. The model is canonc's: norm and layer, norm and SwiGLU, with
residuals; the layer is fla's own module, run as it is. The rest is PyTorch, compiled if --mode says so. The step is
forward, backward, clipping and AdamW.
"""

import argparse
import importlib.util
import json
import statistics
import time

FAMILIES = ("gla", "gated deltanet", "mamba2")


def missing():
    """The first package that is not installed. fla's kernels without its layers are a package of their own."""
    for name in ("torch", "fla", "fla.layers"):
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            return name
    return None


def layer(a):
    from fla import layers

    if a.family == "gla":
        return layers.GatedLinearAttention(
            hidden_size=a.dim, num_heads=a.heads, expand_k=1.0, expand_v=2.0, use_short_conv=True, conv_size=4
        )
    if a.family == "gated deltanet":
        return layers.GatedDeltaNet(hidden_size=a.dim, num_heads=a.heads, head_dim=a.dim // a.heads, expand_v=2)
    return layers.Mamba2(
        hidden_size=a.dim, num_heads=a.heads, head_dim=2 * a.dim // a.heads, state_size=a.state, expand=2, n_groups=1
    )


def model(a):
    import torch
    from torch import nn
    from torch.nn import functional

    compiled = torch.compile if a.mode == "compile" else lambda function: function

    @compiled
    def unit(x, norm, gate, up, down):
        y = functional.rms_norm(x, x.shape[-1:], norm, 1e-5)
        return x + functional.linear(
            functional.silu(functional.linear(y, gate)) * functional.linear(y, up), down
        )

    @compiled
    def loss(x, norm, head, targets):
        logits = functional.linear(functional.rms_norm(x, x.shape[-1:], norm, 1e-5), head)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def weight(*shape):
        return nn.Parameter(torch.randn(*shape) * 0.02)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mixer = layer(a)
            self.norms = nn.ParameterList([torch.ones(a.dim), torch.ones(a.dim)])
            self.unit = nn.ParameterList([weight(a.hidden, a.dim), weight(a.hidden, a.dim), weight(a.dim, a.hidden)])

        def forward(self, x):
            x = x + self.mixer(functional.rms_norm(x, x.shape[-1:], self.norms[0], 1e-5))[0]
            return unit(x, self.norms[1], *self.unit)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(a.vocab, a.dim)
            self.blocks = nn.ModuleList(Block() for _ in range(a.layers))
            self.norm, self.head = nn.Parameter(torch.ones(a.dim)), weight(a.vocab, a.dim)

        def forward(self, tokens, targets):
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return loss(x, self.norm, self.head, targets)

    return Model()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", choices=FAMILIES, required=True)
    for name in ("dim", "layers", "heads", "hidden", "vocab", "state", "seq", "batch", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--mode", choices=("eager", "compile"), required=True)
    a = parser.parse_args()
    if name := missing():
        print(json.dumps({"missing": name}))
        return
    import torch

    torch.manual_seed(0)
    trained = model(a).to(a.device)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.randint(a.vocab, (a.batch, a.seq + 1), device=a.device)
    kind = a.device.split(":")[0]

    def step():
        with torch.autocast(kind, torch.bfloat16, enabled=a.dtype == "bfloat16"):
            loss = trained(data[:, :-1], data[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if kind == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        step()
    seconds = []
    for _ in range(a.steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"step_s": statistics.median(seconds)}))


if __name__ == "__main__":
    main()
