"""Logits of a Hugging Face folder by the real `transformers`, or the tensors of a .pth file.

    transformers_logits.py FOLDER TOKENS OUT
    transformers_logits.py pth FILE OUT

FOLDER is as `canonc export --to hf` writes it, and TOKENS a safetensors file with `tokens` [batch, time]. OUT becomes a
safetensors file with `logits`, or with every tensor. It prints one line of JSON with the version of the library.

Only published classes and loaders are used (`AutoModelForCausalLM`, `torch.load(weights_only=True)`), and a name missing
or left over is an error.
"""

import json
import sys

import numpy


def logits_of(folder, tokens):
    import torch
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    wrong = {key: sorted(map(str, value)) for key, value in info.items() if value}
    if wrong:
        sys.exit("error: loading {} found {}".format(folder, wrong))
    with torch.no_grad():
        return model, model.eval()(torch.from_numpy(tokens)).logits.numpy()


def main():
    from safetensors.numpy import load_file, save_file

    if sys.argv[1] == "pth":
        import torch

        held = torch.load(sys.argv[2], map_location="cpu", weights_only=True)
        if set(held) != {"model"}:
            sys.exit("error: it has {}".format(sorted(held)))
        tensors = {name: tensor.float().numpy() for name, tensor in held["model"].items()}
        save_file(tensors, sys.argv[3])
        print(json.dumps({"framework": "torch", "version": torch.__version__, "tensors": len(tensors)}))
        return
    import transformers

    model, logits = logits_of(sys.argv[1], load_file(sys.argv[2])["tokens"])
    save_file({"logits": numpy.ascontiguousarray(logits, dtype="float32")}, sys.argv[3])
    said = {"class": type(model).__name__, "version": transformers.__version__}
    print(json.dumps(said))


main()
