"""Makes the folders here: small random models of classes of `transformers`, with the logits of those classes.

    python make.py [NAME...]

Without names it makes all folders, which the versions below do; a new class is appended, since its place is its seed, and
made alone.

Made with Python 3.11, torch 2.5.1, transformers 4.47.1, safetensors 0.8.0. That version has no Qwen3: its class is
Qwen2's, with the attention below in place of its own, which adds a norm of each head's queries and keys and a window
for the upper layers. Its `config.json` is written as Qwen3's.

Each folder has `config.json` and weights as `save_pretrained` writes them, and `expected.safetensors`: `tokens`
[2, 24], `logits` in f32, and `logits64`, those of the same weights in f64 (norms and softmax, too, which the classes
compute in f32 otherwise; angles of RoPE stay f32).
"""

import copy
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm, apply_rotary_pos_emb, repeat_kv

HERE = Path(__file__).parent
SIZES = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    torch_dtype="bfloat16",
    attn_implementation="eager",
)


class Qwen3Attention(nn.Module):
    """Attention with a norm of each head's queries and keys before RoPE."""

    def __init__(self, config, layer):
        super().__init__()
        self.width = config.head_dim
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        windowed = config.use_sliding_window and layer >= config.max_window_layers
        self.window = config.sliding_window if windowed else None
        dim, bias = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(dim, self.heads * self.width, bias=bias)
        self.k_proj = nn.Linear(dim, self.kv_heads * self.width, bias=bias)
        self.v_proj = nn.Linear(dim, self.kv_heads * self.width, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.width, dim, bias=bias)
        self.q_norm = Qwen2RMSNorm(self.width, eps=config.rms_norm_eps)
        self.k_norm = Qwen2RMSNorm(self.width, eps=config.rms_norm_eps)

    def forward(self, hidden_states, position_embeddings=None, **_):
        b, t, _ = hidden_states.shape
        q = self.q_norm(self.q_proj(hidden_states).view(b, t, self.heads, self.width)).transpose(1, 2)
        k = self.k_norm(self.k_proj(hidden_states).view(b, t, self.kv_heads, self.width)).transpose(1, 2)
        v = self.v_proj(hidden_states).view(b, t, self.kv_heads, self.width).transpose(1, 2)
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        k, v = (repeat_kv(x, self.heads // self.kv_heads) for x in (k, v))
        back = torch.arange(t)[:, None] - torch.arange(t)[None, :]  # tokens between query and key
        seen = (back >= 0) & (back < (self.window or t))
        scores = (q @ k.transpose(2, 3) / self.width**0.5).masked_fill(~seen, float("-inf"))
        y = nn.functional.softmax(scores, dim=-1) @ v
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1)), None, None


def qwen3(**keys):
    config = Qwen2Config(**{**SIZES, **keys})
    model = Qwen2ForCausalLM(config)
    for layer, block in enumerate(model.model.layers):
        block.self_attn = Qwen3Attention(config, layer)
    model.tie_weights()
    return model


QWEN3 = dict(
    head_dim=12,
    attention_bias=False,
    rope_theta=1000000.0,
    rms_norm_eps=1e-6,
    use_sliding_window=False,
    sliding_window=None,
    max_window_layers=2,
    tie_word_embeddings=False,
)
LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)

MODELS = {
    "llama31": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_theta=500000.0, rope_scaling=LLAMA3)),
    "llama_linear": lambda: LlamaForCausalLM(
        LlamaConfig(**SIZES, rope_scaling=dict(rope_type="linear", factor=2.5), attention_bias=True)
    ),
    # This version takes `original` from `max_position_embeddings`.
    "llama_yarn": lambda: LlamaForCausalLM(
        LlamaConfig(
            **{**SIZES, "max_position_embeddings": 64},
            head_dim=16,
            rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64),
            tie_word_embeddings=True,
        )
    ),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, head_dim=12, sliding_window=5)),
    "qwen3": lambda: qwen3(**QWEN3),
    "qwen3_windows": lambda: qwen3(
        **{**QWEN3, "num_hidden_layers": 3, "attention_bias": True, "tie_word_embeddings": True}
        | {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
    ),
    "gemma2": lambda: Gemma2ForCausalLM(
        Gemma2Config(
            **{**SIZES, "num_hidden_layers": 4},
            head_dim=12,
            query_pre_attn_scalar=20,
            sliding_window=5,
            attn_logit_softcapping=4.0,
            final_logit_softcapping=6.0,
        )
    ),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**SIZES, rope_theta=500000.0)),
}


def draw(model, generator):
    """Values that make every part count: no weight of a norm is 1, no bias 0."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.ndim == 1:
            base = 0.0 if "bias" in name or "gemma" in model.config.model_type else 1.0
            noise = base + 0.3 * noise
        else:
            noise = noise * (1.5 / p.shape[1] ** 0.5)
        p.data = noise.bfloat16().float()


def wide(model, tokens):
    """Logits in f64: casts to f32 inside the classes become casts to f64 while they are computed."""
    for p in model.parameters():  # not the frequencies of RoPE
        p.data = p.data.double()
    softmax, to, single = nn.functional.softmax, torch.Tensor.to, torch.Tensor.float

    def kept(self, *args, **kwargs):
        narrow = self.dtype == torch.float64 and args == (torch.float32,)
        return self if narrow else to(self, *args, **kwargs)

    def softmax64(x, dim=-1, dtype=None):
        return softmax(x, dim=dim, dtype=x.dtype)

    nn.functional.softmax, torch.Tensor.to = softmax64, kept
    torch.Tensor.float = lambda self: self if self.dtype == torch.float64 else single(self)
    try:
        return model(input_ids=tokens, use_cache=False).logits
    finally:
        nn.functional.softmax, torch.Tensor.to, torch.Tensor.float = softmax, to, single


def main():
    for index, (name, make) in enumerate(MODELS.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        generator = torch.Generator().manual_seed(index)
        torch.manual_seed(index)
        model = make().eval()
        draw(model, generator)
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*"):
            old.unlink()
        sharded = dict(max_shard_size="20KB") if name == "mistral" else {}
        # A copy, since a cast of the model would round the frequencies of RoPE as well.
        copy.deepcopy(model).bfloat16().save_pretrained(folder, **sharded)
        (folder / "generation_config.json").unlink()
        if name.startswith("qwen3"):
            path = folder / "config.json"
            config = json.loads(path.read_text())
            config |= {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
            # Qwen2's class writes null where no layer has a window.
            path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        tokens = torch.randint(0, 64, (2, 24), generator=generator)
        with torch.no_grad():
            logits = model(input_ids=tokens, use_cache=False).logits
            logits64 = wide(model, tokens)
        assert logits64.dtype == torch.float64
        save_file(
            {"tokens": tokens, "logits": logits.contiguous(), "logits64": logits64.contiguous()},
            folder / "expected.safetensors",
        )
        off = (logits - logits64).abs().max().item()
        print(f"{name}: largest logit {logits64.abs().max():.2f}, f32 and f64 differ by {off:.1e}")


main()
