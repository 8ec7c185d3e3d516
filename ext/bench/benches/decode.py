"""Decoding with transformers, for the benchmark `decode`: the Llama of arch/llama_768.canon with random weights.

It prints {"torch": version, "threads": n, "parameters": n}. For each line with a number it then generates that many
tokens from a prompt of one and prints {"ms": mean milliseconds of a token}. It ends when its input ends.
"""

import argparse
import json
import sys
import time

import torch
import transformers


def answer(value):
    print(json.dumps(value), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dtype", choices=["f32", "bf16"], required=True)
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--warm-up", type=int, required=True)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=10000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
        max_position_embeddings=4096, tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    if a.dtype == "bf16":
        model = model.to(torch.bfloat16)
    # No token ends the text.
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    prompt = torch.zeros(1, 1, dtype=torch.long)

    def tokens(count):
        began = time.perf_counter()
        text = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False
        )
        assert text.shape[1] == count + 1, text.shape
        return 1e3 * (time.perf_counter() - began) / count

    with torch.inference_mode():
        tokens(a.warm_up)
        parameters = sum(t.numel() for t in model.parameters())
        answer({"torch": torch.__version__, "threads": torch.get_num_threads(), "parameters": parameters})
        for line in sys.stdin:
            answer({"ms": tokens(int(line))})


if __name__ == "__main__":
    main()
