"""Uses of exported folders in one version of `transformers`: FOLDER...

Prints a line of JSON for each FOLDER: its class's origin, and for each use `yes`, `refused`, or what went wrong. Beside
each folder are FOLDER.tokens.safetensors with `tokens` [batch, time] and FOLDER.ours.safetensors with canonc's `logits`.
MATRIX_BACKEND names the backend of torch.compile: by default the graph is captured, differentiated and
decomposed as for Inductor, but not compiled.
"""

import json
import logging
import os
import pathlib
import sys
import tempfile
import time
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
import peft
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

MAJOR = int(transformers.__version__.split(".")[0])
BACKEND = os.environ.get("MATRIX_BACKEND", "aot_eager_decomp_partition")
SAID = []


class Listener(logging.Handler):
    def emit(self, record):
        SAID.append(record.getMessage())


def load(folder, **more):
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32, **more).eval()
    if hasattr(getattr(model, "model", None), "trains_without"):
        model.model.trains_without = True
    return model


def check(holds, message):
    if not holds:
        raise AssertionError(message)


def near(a, b, what, allowed=1e-4):
    check(a.shape == b.shape, "{}: shapes {} {}".format(what, tuple(a.shape), tuple(b.shape)))
    off = ((a - b).abs().max() / a.abs().max().clamp_min(1e-9)).item()
    check(off <= allowed, "{} is off by {:.1e}".format(what, off))


def refused(call, *words):
    """Whether a call raises an error with one of these words."""
    try:
        call()
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        check(any(word in str(error) for word in words), "refused with {!r}".format(error))
        return True
    return False


class Uses:
    def __init__(self, folder):
        self.folder = folder
        self.tokens = load_file(str(folder) + ".tokens.safetensors")["tokens"]
        self.ours = load_file(str(folder) + ".ours.safetensors")["logits"]
        self.own = (folder / "modeling_canonc.py").exists()
        self.model = load(folder)

    def load(self):
        model, info = load(self.folder), None
        with torch.no_grad():
            near(self.ours, model(self.tokens).logits, "logits")
        for wanted in (model.get_input_embeddings(), model.get_output_embeddings()):
            check(isinstance(wanted, torch.nn.Module), "embeddings are {}".format(type(wanted).__name__))
        config = AutoConfig.from_pretrained(self.folder, trust_remote_code=True)
        if self.own:
            config.num_hidden_layers += 2
            make = lambda: AutoModelForCausalLM.from_config(config, trust_remote_code=True)
            check(refused(make, "num_hidden_layers"), "another number of layers is taken")
        return "yes"

    @torch.no_grad()
    def generate(self):
        """Text with a cache is that without; each token is computed once."""
        model, count, forward = self.model, [0], self.model.forward

        def counted(*given, **named):
            count[0] += named["input_ids"].shape[1]
            return forward(*given, **named)

        ids = self.tokens[:, :7]
        common = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 6, "do_sample": False}
        common |= {"eos_token_id": None, "pad_token_id": 0}
        model.forward = counted
        cached = model.generate(ids, **common)
        del model.forward
        check(count[0] == 7 + 5, "{} tokens are computed for 12".format(count[0]))
        check(torch.equal(cached, model.generate(ids, use_cache=False, **common)), "another text without a cache")
        name = "cache" if MAJOR > 4 else "past_key_values"
        whole, start = model(self.tokens).logits, model(ids, use_cache=True)
        near(whole[:, 7:], model(self.tokens[:, 7:], **{name: start[name]}).logits, "logits after a cache")
        if self.own:
            for alias in ("cache", "past_key_values"):
                state = model(ids, use_cache=True)[name]
                near(whole[:, 7:], model(self.tokens[:, 7:], **{alias: state}).logits, alias)
        return "yes"

    @torch.no_grad()
    def padding(self):
        """Rows of a padded batch have the logits and texts that they have alone."""
        model, (first, second) = self.model, self.tokens[:2]
        for cached in (False, True):
            for side in ("left", "right"):
                ids, mask = torch.zeros(2, 13, dtype=torch.long), torch.zeros(2, 13, dtype=torch.long)
                for row, (tokens, count) in enumerate([(first, 13), (second, 5)]):
                    at = slice(13 - count, 13) if side == "left" else slice(0, count)
                    ids[row, at], mask[row, at] = tokens[:count], 1
                # As data collators and `generate` make positions: classes of `transformers` need them.
                places = (mask.cumsum(1) - 1).clamp_min(0)
                for given in ({"position_ids": places}, {}) if self.own else ({"position_ids": places},):
                    got = model(ids, attention_mask=mask, use_cache=cached, **given).logits
                    for row, (tokens, count) in enumerate([(first, 13), (second, 5)]):
                        near(model(tokens[None, :count]).logits[0], got[row][mask[row].bool()], side + " padding")
                if side == "left":
                    common = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
                    texts = model.generate(ids, attention_mask=mask, use_cache=cached, **common)
                    alone = second[None, :5]
                    text = model.generate(alone, attention_mask=torch.ones_like(alone), **common)
                    check(torch.equal(texts[1, 13:], text[0, 5:]), "a padded row has another text")
        return "yes"

    @torch.no_grad()
    def packed(self):
        """Two texts in a row: refused, or as two rows. What `forward` does not read is refused by name."""
        model, ids = self.model, self.tokens[:1, :12]
        places = torch.tensor([[*range(5), *range(7)]])
        if self.own:
            ends = torch.tensor([0, 5, 12], dtype=torch.int32)
            for name, value in {"cu_seq_lens_q": ends, "token_type_ids": ids * 0, "odd": 1}.items():
                check(refused(lambda: model(ids, **{name: value}), name), name + " is taken")
        if refused(lambda: model(ids, position_ids=places, use_cache=False), "position_ids"):
            return "refused"
        got = model(ids, position_ids=places, use_cache=False).logits
        near(torch.cat([model(ids[:, :5]).logits, model(ids[:, 5:]).logits], 1), got, "a packed row")
        return "yes"

    @torch.no_grad()
    def save(self):
        with tempfile.TemporaryDirectory() as place:
            self.model.save_pretrained(place)
            bounded = getattr(self.model.config, "attn_logit_softcapping", None) is not None
            again = load(place, **({"attn_implementation": "eager"} if bounded else {}))
            for (name, a), (other, b) in zip(self.model.state_dict().items(), again.state_dict().items(), strict=True):
                check(name == other and torch.equal(a, b), name + " changed")
            # Equal weights elsewhere in memory may be multiplied in another order.
            near(self.model(self.tokens).logits, again(self.tokens).logits, "logits", 1e-5)
        return "yes"

    def trainer(self):
        """Three steps of the Trainer on padded rows lower the loss."""
        model = load(self.folder)
        if hasattr(getattr(model, "model", None), "trains_without"):
            # Of a loss that has other terms, or with dropout.
            model.train().model.trains_without = False
            check(refused(lambda: model(self.tokens), "leave out"), "it trains without parts of canonc's training")
            model.model.trains_without = True
        rows = [{"input_ids": self.tokens[i % 2, :n], "labels": self.tokens[i % 2, :n]} for i, n in enumerate((9, 6, 9, 6))]

        def collate(rows):
            pad = lambda x, value: torch.nn.functional.pad(x, (0, 9 - len(x)), value=value)
            return {
                "input_ids": torch.stack([pad(row["input_ids"], 0) for row in rows]),
                "labels": torch.stack([pad(row["labels"], -100) for row in rows]),
                "attention_mask": torch.stack([pad(torch.ones_like(row["input_ids"]), 0) for row in rows]),
            }

        with tempfile.TemporaryDirectory() as place:
            arguments = TrainingArguments(
                place, max_steps=4, per_device_train_batch_size=4, learning_rate=2e-3, logging_steps=1, report_to=[],
                save_strategy="no", use_cpu=True, disable_tqdm=True, lr_scheduler_type="constant",
            )
            trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collate)
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()
            losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        check(losses[-1] < losses[0], "losses are {}".format(losses))
        return "yes"

    def lora(self):
        """Adapters of all linear modules train, with and without checkpointing, and nothing else does."""
        for checkpointing in (False, True):
            model = load(self.folder)
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            if checkpointing:
                model.gradient_checkpointing_enable()
                model.enable_input_require_grads()
            adapted = peft.get_peft_model(
                model, peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
            ).train()
            layers = {name.split(".layers.")[1].split(".")[0] for name, _ in adapted.named_parameters() if "lora_A" in name}
            check(len(layers) > 0, "no adapters")
            optimizer = torch.optim.Adam([p for p in adapted.parameters() if p.requires_grad], 1e-2)
            losses = []
            for _ in range(3):
                loss = adapted(input_ids=self.tokens, labels=self.tokens).loss
                losses.append(loss.item())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            check(losses[-1] < losses[0], "losses are {}".format(losses))
            kept = {name.replace("base_model.model.", "").replace(".base_layer", ""): p for name, p in adapted.named_parameters()}
            check(all(torch.equal(value, kept[name]) for name, value in before.items()), "a base weight changed")
        return "yes"

    @staticmethod
    def gradients(model):
        """Of all parameters: a bias that only chooses experts has none."""
        return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]

    def checkpointing(self):
        """Gradients are those without checkpointing, in both of its forms."""
        model, gradients = load(self.folder).train(), []
        for reentrant in (None, False, True):
            if reentrant is not None:
                model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            torch.manual_seed(0)
            model(self.tokens, labels=self.tokens).loss.backward()
            gradients.append(self.gradients(model))
            model.zero_grad()
        for other in gradients[1:]:
            for (name, _), a, b in zip(model.named_parameters(), gradients[0], other):
                near(a, b, "the gradient of " + name, 1e-5) if a.abs().max() > 1e-9 else None
        return "yes"

    def hidden(self):
        """Hidden states, and embeddings instead of ids, where the model reads ids at one place."""
        model = self.model
        with torch.no_grad():
            out = model(self.tokens, output_hidden_states=True)
            check(len(out.hidden_states) == model.config.num_hidden_layers + 1, "hidden states")
            embeds = model.get_input_embeddings()(self.tokens)
            if refused(lambda: model(inputs_embeds=embeds), "token ids"):
                return "refused"
            near(out.logits, model(inputs_embeds=embeds).logits, "logits of embeddings")
            mask = torch.ones(embeds.shape[:2], dtype=torch.long)
            common = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            text = model.generate(inputs_embeds=embeds, attention_mask=mask, **common)
            whole = model.generate(self.tokens, attention_mask=mask, **common)[:, self.tokens.shape[1] :]
            check(torch.equal(text, whole), "another text from embeddings")
        return "yes"

    def compile(self):
        """One graph, forward and backward, of rows with padding."""
        torch._dynamo.reset()
        model = load(self.folder)
        compiled = torch.compile(model, fullgraph=True, backend=BACKEND)
        mask = torch.ones_like(self.tokens)
        if self.own:
            mask[1, :4] = 0
        given = {"attention_mask": mask, "labels": self.tokens, "use_cache": False}
        out, eager = compiled(self.tokens, **given), model(self.tokens, **given)
        near(eager.logits[mask.bool()].detach(), out.logits[mask.bool()].detach(), "compiled logits")
        out.loss.backward()
        ours = self.gradients(model)
        model.zero_grad()
        eager.loss.backward()
        theirs = self.gradients(model)
        # Rounding of gradients that nearly cancel is small beside the largest of all.
        largest = max(a.abs().max().item() for a in theirs)
        for a, b in zip(theirs, ours):
            off = (a - b).abs().max().item()
            check(off <= max(1e-3 * a.abs().max().item(), 1e-5 * largest), "a compiled gradient is off by {:.1e}".format(off))
        return "yes"


NAMES = ["load", "generate", "padding", "packed", "save", "trainer", "lora", "checkpointing", "hidden", "compile"]
NAMES = os.environ.get("MATRIX_USES", " ".join(NAMES)).split()


def main():
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    transformers.logging.disable_progress_bar()
    logger = logging.getLogger("transformers")
    logger.handlers = [Listener()]
    logger.propagate = False
    for folder in map(pathlib.Path, sys.argv[1:]):
        uses = Uses(folder)
        cells, seconds = {}, {}
        for name in NAMES:
            began = time.monotonic()
            try:
                cells[name] = getattr(uses, name)()
            except Exception as error:
                if os.environ.get("MATRIX_TRACE"):
                    raise
                cells[name] = "{}: {}".format(type(error).__name__, str(error)[:600])
            seconds[name] = round(time.monotonic() - began, 1)
        line = {"name": folder.name, "own": uses.own, "cells": cells, "seconds": seconds}
        line["deprecated"] = sorted({said for said in SAID if "deprecat" in said.lower()})
        print(json.dumps(line), flush=True)


main()
