"""A training step in PyTorch: of the two architectures of arch/peer.canon, as a user would write them, or of any other.

After a few untimed steps it prints {"torch": version, "threads": n, "parameters": n}. For each line with a number it
then trains that many steps and prints {"ms": [milliseconds of each step]}. It ends when its input ends. With --steps it
reads nothing, and prints one line: {"step_s": median, "tokens_per_s": n, ...}.

--conv conv1d is the published models' form without their CUDA kernel: a depthwise convolution of a transposed view.
--conv shift is the same sum as shifted products, which is faster in eager mode and which torch.compile can fuse.
--module is a file with a class Model that has `vocab` and `loss(tokens, targets)`, as `canonc export --to torch` writes.
--canon names the slots that hold Canon layers, of ABCD; --arch llamacanon is all four.

On a GPU blocks are compiled one by one, as torchtitan does: all have one code. The whole model takes minutes there, and
is no faster. Head and loss run in chunks of --head-rows tokens, so that the logits never exist at once.
"""

import argparse
import importlib.util
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

KERNEL, EPS, THETA = 4, 1e-5, 10000.0


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
    def __init__(self, a):
        super().__init__()
        self.dim, self.heads = a.dim, a.heads
        self.n1, self.n2 = nn.Parameter(torch.ones(a.dim)), nn.Parameter(torch.ones(a.dim))
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(a.dim, a.dim, bias=False) for _ in range(4))
        self.w1, self.w3 = nn.Linear(a.dim, a.hidden, bias=False), nn.Linear(a.dim, a.hidden, bias=False)
        self.w2 = nn.Linear(a.hidden, a.dim, bias=False)
        slot = lambda name, width: Canon(width, a.conv) if name in a.canon else nn.Identity()
        self.cA, self.cB = slot("A", a.dim), slot("B", 3 * a.dim)
        self.cC, self.cD = slot("C", a.dim), slot("D", 2 * a.hidden)

    def forward(self, x, cos, sin):
        batch, time, _ = x.shape
        u = self.cA(F.rms_norm(x, (self.dim,), self.n1, EPS))
        q, k, v = self.cB(torch.cat((self.wq(u), self.wk(u), self.wv(u)), -1)).chunk(3, -1)
        q, k, v = (t.view(batch, time, self.heads, -1) for t in (q, k, v))
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        o = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        x = x + self.wo(o.transpose(1, 2).reshape(batch, time, self.dim))
        u = self.cC(F.rms_norm(x, (self.dim,), self.n2, EPS))
        gate, up = self.cD(torch.cat((self.w1(u), self.w3(u)), -1)).chunk(2, -1)
        return x + self.w2(F.silu(gate) * up)


def chunk_loss(logits, targets, count):
    """The sum of a chunk's losses over `count`, and its gradient; logits are [rows, vocab]."""
    logits = logits.float()
    lse = logits.logsumexp(-1, keepdim=True)
    loss = (lse - logits.gather(1, targets[:, None])).sum() / count
    columns = torch.arange(logits.shape[1], device=logits.device)
    return loss, ((logits - lse).exp() - (columns == targets[:, None]).float()) / count


class HeadLoss(torch.autograd.Function):
    """The mean cross-entropy of x @ weight.T by chunks of rows, with the gradient computed while a chunk's logits exist."""

    @staticmethod
    def forward(ctx, x, weight, targets, rows, dtype, of_chunk):
        h, w = x.to(dtype), weight.to(dtype)
        loss, dx, dw = x.new_zeros(()), torch.empty_like(h), torch.zeros_like(weight)
        for begin in range(0, len(h), rows):
            part = slice(begin, begin + rows)
            term, d = of_chunk(h[part] @ w.T, targets[part], len(h))
            d = d.to(dtype)
            loss += term
            dx[part] = d @ w
            dw += d.T @ h[part]
        ctx.save_for_backward(dx.to(x.dtype), dw)
        return loss

    @staticmethod
    def backward(ctx, d):
        dx, dw = ctx.saved_tensors
        return dx * d, dw * d, None, None, None, None


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.rows, self.of_chunk = a.head_rows, chunk_loss
        self.dtype = torch.bfloat16 if a.dtype in ("bf16", "bfloat16") else torch.float32
        self.embed = nn.Embedding(a.vocab, a.dim)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.norm, self.head = nn.Parameter(torch.ones(a.dim)), nn.Linear(a.dim, a.vocab, bias=False)
        cos, sin = rope_table(a.dim // a.heads, a.seq_len)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def compile_blocks(self):
        self.of_chunk = torch.compile(chunk_loss)
        for block in self.blocks:
            block.compile()

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        x, targets = F.rms_norm(x, x.shape[-1:], self.norm, EPS).flatten(0, 1), targets.flatten()
        if self.rows:
            return HeadLoss.apply(x, self.head.weight, targets, self.rows, self.dtype, self.of_chunk)
        return F.cross_entropy(self.head(x).float(), targets)


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


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--arch")
    p.add_argument("--canon", help="slots, of ABCD")
    p.add_argument("--module")
    for name, value in dict(vocab=10000, dim=256, layers=6, heads=8, hidden=768).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--mode", choices=["eager", "compile"], required=True)
    p.add_argument("--conv", choices=["shift", "conv1d"], default="shift")
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", choices=["f32", "bf16", "float32", "bfloat16"], default="f32")
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--seq-len", "--seq", type=int, required=True)
    p.add_argument("--head-rows", type=int, help="0: all at once [default: 4096 on a GPU, else 0]")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--warm-up", type=int, default=3)
    p.add_argument("--steps", type=int)
    a = p.parse_args()
    if a.canon is None:
        a.canon = "ABCD" if a.arch == "llamacanon" else ""
    if a.head_rows is None:
        a.head_rows = 4096 if a.device.startswith("cuda") else 0
    return a


def main():
    a = arguments()
    kind = a.device.split(":")[0]
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    with torch.device(a.device):
        model = Exported(a.module) if a.module else Model(a)
    vocab = model.model.vocab if a.module else a.vocab
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    run = model
    if a.mode == "compile" and kind == "cuda" and not a.module:
        model.compile_blocks()
    elif a.mode == "compile":
        run = torch.compile(model)
    data = torch.randint(vocab, (a.batch, a.seq_len + 1), device=a.device)

    def step():
        with torch.autocast(kind, torch.bfloat16, enabled=a.dtype in ("bf16", "bfloat16")):
            loss = run(data[:, :-1], data[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if kind == "cuda":
            torch.cuda.synchronize()
        return loss

    def timed(count):
        """Milliseconds of each step."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - began))
        return times

    began = time.perf_counter()
    for _ in range(a.warm_up):
        step()
    warm_up = time.perf_counter() - began
    parameters = sum(t.numel() for t in model.parameters())
    facts = {"torch": torch.__version__, "threads": torch.get_num_threads(), "parameters": parameters}
    if a.steps is None:
        answer(facts)
        for line in sys.stdin:
            answer({"ms": timed(int(line))})
        return
    seconds = statistics.median(timed(a.steps)) / 1e3
    tokens = a.batch * a.seq_len
    facts |= {"mode": a.mode, "canon": a.canon, "dtype": a.dtype, "batch": a.batch, "seq_len": a.seq_len}
    facts |= {"step_s": seconds, "tokens_per_s": tokens / seconds, "warm_up_s": warm_up, "loss": step().item()}
    if kind == "cuda":
        facts |= {"gpu": torch.cuda.get_device_name(), "peak_bytes": torch.cuda.max_memory_allocated()}
    answer(facts)


if __name__ == "__main__":
    main()
