"""Uses exported folders as people do, in the real `transformers` and lm-evaluation-harness.

    transformers_folders.py FOLDER...

Each FOLDER is as `canonc export --to hf` writes it. Beside it are FOLDER.tokens.safetensors with `tokens` [batch, time],
and FOLDER.ours.safetensors with `logits` as `canonc forward` writes them. It prints a line of JSON for each FOLDER: the
largest difference of logits, relative to the largest.

Every other fault ends with an error: tensors missing or left over; batched, cached, left-padded generation that differs
from one row at a time without a cache; a round trip of `save_pretrained` that changes a bit; a mask that hides tokens
between others and is taken; lm-eval's log-likelihoods, if there is a tokenizer.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast


def load(folder, **more):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True, **({"dtype": torch.float32} | more)
    )
    wrong = {key: sorted(map(str, value)) for key, value in info.items() if value}
    check(not wrong, "loading {} found {}".format(folder, wrong))
    return model.eval()


def check(holds, message):
    if not holds:
        sys.exit("error: " + message)


def off(ours, theirs):
    check(ours.shape == theirs.shape and bool(theirs.isfinite().all()), "{} {}".format(ours.shape, theirs.shape))
    return ((ours - theirs).abs().max() / ours.abs().max().clamp_min(1e-12)).item()


def prompts(vocab):
    """Rows of several lengths, at the right of a rectangle, and its mask."""
    rows = [[(7 * i * i + 3 * i + n) % vocab for i in range(n)] for n in (3, 19, 1, 8)]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return [torch.tensor([row]) for row in rows], ids, mask


def generates(model, name):
    rows, ids, mask = prompts(model.config.vocab_size)
    width = ids.shape[1]
    common = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    # Without a mask, `generate` takes token 0 for padding.
    whole = lambda ids: {"attention_mask": torch.ones_like(ids), **common}
    batched = model.generate(ids, attention_mask=mask, **common)
    beams = model.generate(ids, attention_mask=mask, num_beams=3, **common)
    for at, row in enumerate(rows):
        alone = model.generate(row, use_cache=False, **whole(row))[0, row.shape[1] :]
        check(torch.equal(batched[at, width:], alone), "{}: row {}: {} {}".format(name, at, batched[at], alone))
        alone = model.generate(row, use_cache=False, num_beams=3, **whole(row))[0, row.shape[1] :]
        check(torch.equal(beams[at, width:], alone), "{}: beams of row {}: {} {}".format(name, at, beams[at], alone))
    # Rows of one length share one state.
    together = model.generate(ids, **whole(ids))
    check(torch.equal(together, model.generate(ids, use_cache=False, **whole(ids))), name + ": rows of one length")


def refuses(model, name):
    holes = {
        "a hole": (torch.tensor([[1, 0, 1, 1]]), None),
        "a hole after padding": (torch.tensor([[0, 1, 0, 1]]), None),
        "another width": (torch.tensor([[1, 1]]), None),
    }
    ids = torch.tensor([[0, 0, 0, 0]])
    for what, (mask, past) in holes.items():
        try:
            model(ids, attention_mask=mask, past_key_values=past)
        except ValueError as error:
            check("attention_mask" in str(error), "{}: {}".format(name, error))
        else:
            sys.exit("error: {}: {} is taken".format(name, what))
    # Padding at the right is never read by the tokens before it, but a row cannot go on after it.
    padded = model(ids, attention_mask=torch.tensor([[1, 1, 0, 0]]))
    check(off(model(ids[:, :2]).logits, padded.logits[:, :2]) < 1e-4, name + ": padding at the right")
    try:
        model(ids[:, :1], attention_mask=torch.tensor([[1, 1, 0, 0, 1]]), past_key_values=padded.past_key_values)
    except ValueError:
        pass
    else:
        sys.exit("error: {}: a row goes on after padding".format(name))


def trains(model, tokens, name):
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    logits = model(tokens).logits[:, :-1]
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    check(abs(loss.item() - wanted.item()) < 1e-5, "{}: loss {} {}".format(name, loss, wanted))
    check(all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters()), name + ": gradients")
    model.zero_grad()


def harness(folder, name):
    """Log-likelihoods of lm-evaluation-harness are those of the model's logits."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(pretrained=str(folder), trust_remote_code=True, device="cpu", batch_size=2, dtype="float32")
    pairs = [("Ab", " cé"), ("To be or", " not"), ("", "x")]
    ask = lambda kind, args: [Instance(request_type=kind, doc={}, arguments=a, idx=i) for i, a in enumerate(args)]
    likelihoods = lm.loglikelihood(ask("loglikelihood", pairs))
    tokenizer, model = PreTrainedTokenizerFast.from_pretrained(folder), load(folder)
    for (context, text), (said, _) in zip(pairs, likelihoods):
        # Version 0.4.13 begins as the tokenizer does.
        before = [tokenizer.bos_token_id] + list(context.encode())
        after = list(text.encode())
        scores = model(torch.tensor([before + after])).logits[0].log_softmax(-1)
        wanted = sum(scores[len(before) - 1 + i, token].item() for i, token in enumerate(after))
        check(abs(wanted - said) < 1e-3, "{}: {!r}: {} {}".format(name, text, wanted, said))
    until = [(context, {"until": ["\n"], "max_gen_toks": 6, "do_sample": False}) for context, _ in pairs[:2]]
    check(len(lm.generate_until(ask("generate_until", until))) == 2, name + ": generate_until")


def tokenizes(folder, name, model):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    text = "Hé\u00ad \n\t€ 漢 a  b"
    ids = tokenizer(text)["input_ids"]
    check(ids == [256] + list(text.encode()), "{}: {}".format(name, ids))
    again = tokenizer.decode(ids, skip_special_tokens=True)
    check(again == text, "{}: {!r}".format(name, again))
    check((tokenizer.bos_token_id, tokenizer.eos_token_id) == (256, 257), name + ": marks")
    pads = {tokenizer.pad_token_id, model.config.pad_token_id, model.generation_config.pad_token_id}
    check(pads == {257}, "{}: pad tokens {}".format(name, pads))
    batch = tokenizer(["a", "a b"], padding=True)
    check([len(ids) for ids in batch["input_ids"]] == [4, 4], "{}: {}".format(name, batch))
    # As the folder's README does it.
    begun = tokenizer("a b", return_tensors="pt")
    more = model.generate(**begun, max_new_tokens=3, do_sample=False)
    check(more[0, :4].tolist() == [256, 97, 32, 98], "{}: {}".format(name, more))


def use(folder):
    name = folder.name
    model = load(folder)
    tokens = load_file(str(folder) + ".tokens.safetensors")["tokens"]
    ours = load_file(str(folder) + ".ours.safetensors")["logits"]
    with torch.no_grad():
        logits = model(tokens).logits
        distance = off(ours, logits)
        generates(model, name)
        own = (folder / "modeling_canonc.py").exists()
        if own:
            refuses(model, name)
        rounded = load(folder, dtype=torch.bfloat16)
        for key, p in rounded.named_parameters():
            # A_log, dt_bias and D, which canonc computes in f32 beside bf16.
            wide = key.rpartition(".")[2] in ("A_log", "dt_bias", "D")
            check(p.dtype == (torch.float32 if wide else torch.bfloat16), "{}: {} is {}".format(name, key, p.dtype))
        near = off(logits, rounded(tokens).logits.float())
        check(near < 0.15, "{}: bf16 is off by {}".format(name, near))
    trains(model, tokens, name)
    saved = folder.parent / (name + "-saved")
    model.save_pretrained(saved)
    # What is saved does not name the implementation of attention, and the usual one leaves out bounds of scores.
    bounded = getattr(model.config, "attn_logit_softcapping", None) is not None
    check(not bounded or model.config._attn_implementation == "eager", name + ": the bound of scores is left out")
    again = load(saved, **({"attn_implementation": "eager"} if bounded else {}))
    for (key, a), (other, b) in zip(model.state_dict().items(), again.state_dict().items()):
        check(key == other and torch.equal(a, b), "{}: {} changed".format(name, key))
    with torch.no_grad():
        check(torch.equal(again(tokens).logits, logits), name + ": other logits after a round trip")
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    fresh = AutoModelForCausalLM.from_config(config, trust_remote_code=True)
    check(all(bool(p.isfinite().all()) for p in fresh.parameters()), name + ": initial values")
    harnessed = (folder / "tokenizer.json").exists()
    if harnessed:
        with torch.no_grad():
            tokenizes(folder, name, model)
            harness(folder, name)
    return {"name": name, "logits": distance, "bf16": near, "own_code": own, "harness": harnessed}


def main():
    torch.set_num_threads(1)
    for folder in sys.argv[1:]:
        print(json.dumps(use(pathlib.Path(folder))), flush=True)


main()
