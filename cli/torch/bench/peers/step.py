"""A training step in PyTorch: of the two architectures of arch/peer.canon, as a user would write them, or of any other.

After a few untimed steps it prints {"torch": version, "threads": n, "parameters": n}. For each line with a number it
then trains that many steps and prints {"ms": [milliseconds of each step]}. It ends when its input ends.

--conv conv1d is the published models' form without their CUDA kernel: a depthwise convolution of a transposed view.
--conv shift is the same sum as shifted products, which is faster in eager mode and which torch.compile can fuse.
--module is a file with a class Model that has `vocab` and `loss(tokens, targets)`, as `canonc export --to torch` writes.
"""

import argparse
import importlib.util
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, LAYERS, HEADS, HIDDEN, KERNEL, EPS, THETA = 10000, 256, 6, 8, 768, 4, 1e-5, 10000.0


class Canon(nn.Module):
    """y = x + a depthwise causal convolution of x over time; x is [batch, time, channels]."""

    def __init__(self, channels, form):
        super().__init__()
        self.form = form
        bound = KERNEL**-0.5
        self.weight = nn.Parameter(torch.empty(channels, 1, KERNEL).uniform_(-bound, bound))

    def forward(self, x):
        if self.form == "conv1d":
            y = F.conv1d(x.transpose(1, 2), self.weight, padding=KERNEL - 1, groups=x.shape[-1])
            return x + y[..., : x.shape[1]].transpose(1, 2)
        w = self.weight[:, 0, :]
        y = x * (1 + w[:, -1])
        for lag in range(1, KERNEL):
            y = y + F.pad(x, (0, 0, lag, 0))[:, : x.shape[1]] * w[:, -1 - lag]
        return y


def rope_table(head_dim, time):
    frequency = 1.0 / THETA ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angle = torch.outer(torch.arange(time).float(), frequency)
    return angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]


def rope(x, cos, sin):
    """Rotates the pairs of neighbouring channels of each head; x is [batch, time, heads, head_dim]."""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, canon, form):
        super().__init__()
        self.n1, self.n2 = nn.Parameter(torch.ones(DIM)), nn.Parameter(torch.ones(DIM))
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.w1, self.w3 = nn.Linear(DIM, HIDDEN, bias=False), nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        slot = lambda width: Canon(width, form) if canon else nn.Identity()
        self.cA, self.cB, self.cC, self.cD = slot(DIM), slot(3 * DIM), slot(DIM), slot(2 * HIDDEN)

    def forward(self, x, cos, sin):
        batch, time, _ = x.shape
        u = self.cA(F.rms_norm(x, (DIM,), self.n1, EPS))
        q, k, v = self.cB(torch.cat((self.wq(u), self.wk(u), self.wv(u)), -1)).chunk(3, -1)
        q, k, v = (t.view(batch, time, HEADS, -1) for t in (q, k, v))
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        o = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        x = x + self.wo(o.transpose(1, 2).reshape(batch, time, DIM))
        u = self.cC(F.rms_norm(x, (DIM,), self.n2, EPS))
        gate, up = self.cD(torch.cat((self.w1(u), self.w3(u)), -1)).chunk(2, -1)
        return x + self.w2(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, canon, form, time):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block(canon, form) for _ in range(LAYERS))
        self.norm, self.head = nn.Parameter(torch.ones(DIM)), nn.Linear(DIM, VOCAB, bias=False)
        cos, sin = rope_table(DIM // HEADS, time)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(F.rms_norm(x, x.shape[-1:], self.norm, EPS))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Exported(nn.Module):
    """The loss of the model in a file."""

    def __init__(self, path):
        super().__init__()
        spec = importlib.util.spec_from_file_location("model", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["model"] = module  # torch.compile imports it by name
        spec.loader.exec_module(module)
        self.model = module.Model()

    def forward(self, tokens, targets):
        return self.model.loss(tokens, targets)


def answer(value):
    print(json.dumps(value), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--arch", required=True)
    p.add_argument("--module")
    p.add_argument("--mode", choices=["eager", "compile"], required=True)
    p.add_argument("--conv", choices=["shift", "conv1d"], default="shift")
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--seq-len", type=int, required=True)
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--warm-up", type=int, required=True)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = Exported(a.module) if a.module else Model(a.arch == "llamacanon", a.conv, a.seq_len)
    vocab = model.model.vocab if a.module else VOCAB
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    run = torch.compile(model) if a.mode == "compile" else model
    data = torch.randint(vocab, (a.batch, a.seq_len + 1))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = run(data[:, :-1], data[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(a.warm_up):
        step()
    parameters = sum(t.numel() for t in model.parameters())
    answer({"torch": torch.__version__, "threads": torch.get_num_threads(), "parameters": parameters})
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            began = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - began))
        answer({"ms": times})


if __name__ == "__main__":
    main()
