"""Compares exported PyTorch modules with canonc: `torch_oracle.py FOLDER`.

FOLDER/NAME/ has `model.py` and `model.safetensors` as `canonc export --to torch` writes them, for each
FOLDER/NAME.ours.safetensors as `canonc forward --grad --dtype f64` writes it. FOLDER/NAME.trainer/ has `model.py` and
`params.toml` as `--to trainer` writes them, and FOLDER/NAME.training.safetensors the same of a loss with every term. FOLDER/NAME.tokens.safetensors has
`tokens` and `targets` [batch, time], and FOLDER/NAME.names.json the tensor of each parameter.

For each NAME it prints a line of JSON with the largest differences, relative to the largest value: logits; loss; the
worst gradient by PyTorch's autograd, and whose; logits of runs in parts from those in one; quantiles of initial values,
of large parameters; the loss and the worst gradient of the training form.
"""

import importlib.util
import json
import pathlib
import random
import sys
import tomllib

import torch
from safetensors.torch import load_file


#: Weights of the terms, as in tests/transformers/modules.rs.
SQUARES = {"nll_square": 0.01, "z_loss": 0.02}
MEANS = {"balance": 0.5, "router_z": 0.25}
AHEAD = 0.75


def module(folder):
    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.Model().eval()


def worst_gradient(model, ours, names):
    """The largest difference of a gradient, and whose it is."""
    # Some gradients are zero but for rounding, as of q and k with a window of one token: those differ in noise.
    largest = max(ours["grad." + path].abs().max().item() for path in names)
    grads = {}
    for path, tensor in names.items():
        parameter = model.get_parameter(tensor)
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        grads[path] = difference(ours["grad." + path].double(), grad, least=1e-6 * largest)
    worst = max(grads, key=grads.get)
    return grads[worst], worst


def training(folder, name, weights, names):
    """Loss and worst gradient of the training form, from canonc's."""
    place = folder / (name + ".trainer")
    if not place.exists():
        # Layers that share parameters and differ, which the test knows.
        return 0.0, 0.0
    given = load_file(folder / (name + ".tokens.safetensors"))
    ours = load_file(folder / (name + ".training.safetensors"))
    rows = tomllib.loads((place / "params.toml").read_text())["param"]
    if {row["path"]: row["name"] for row in rows} != names:
        sys.exit("error: {}: params.toml has other names".format(name))
    model = module(place)
    model.load_state_dict(weights, strict=True)
    # Several pieces of the loss, and layers that are computed again.
    model.double().train(not hasattr(model, "drops_at"))
    model.logits_at_once, model.checkpointing = 5 * model.vocab, True
    sums = model(given["tokens"], given["targets"], **SQUARES)
    counted = (given["targets"] != -100).sum().item()
    loss = sums["loss"] / counted
    total = loss + sum(weight * sums[term] for term, weight in MEANS.items() if term in sums)
    for term in sums:
        if term.startswith("ahead_"):
            total = total + AHEAD / len(model.ahead) * sums[term] / counted
    total.backward()
    return abs(ours["loss"].item() - loss.item()), worst_gradient(model, ours, names)[0]


def difference(ours, theirs, least=1e-12):
    if ours.shape != theirs.shape:
        sys.exit("error: shapes {} and {}".format(tuple(ours.shape), tuple(theirs.shape)))
    if not theirs.isfinite().all():
        return float("inf")
    return ((ours - theirs).abs().max() / ours.abs().max().clamp_min(max(least, 1e-300))).item()


def parts(time):
    """Token by token, and random cuts, some of them into nothing."""
    yield list(range(1, time))
    for seed in range(3):
        rng = random.Random(seed)
        yield sorted(rng.randrange(time + 1) for _ in range(rng.randrange(1, 6)))


@torch.no_grad()
def in_parts(model, tokens, cuts):
    past, pieces = None, []
    for part in torch.tensor_split(tokens, cuts, dim=1):
        piece, past = model(part, past)
        pieces.append(piece)
    return torch.cat(pieces, dim=1)


def spread(ours, drawn):
    """The largest difference of quantiles, relative to the range, for parameters with many values."""
    if ours.numel() < 4000 and (ours.numel() < 3 or ours.std(correction=0) > 0):
        return 0.0
    share = torch.tensor([0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0])
    a, b = (torch.quantile(x.flatten()[:100000].float(), share) for x in (ours, drawn))
    # The ends are rare values, except that no value may be far outside.
    inside = (a - b).abs()[1:-1].max() / (a[-1] - a[0]).clamp_min(1e-12)
    outside = max((a[0] - b[0]).item(), (b[-1] - a[-1]).item(), 0.0) / (a[-1] - a[0]).clamp_min(1e-12).item()
    return max(inside.item(), outside / 4)


def compare(folder, name):
    given = load_file(folder / (name + ".tokens.safetensors"))
    tokens, targets = given["tokens"], given["targets"]
    torch.manual_seed(0)
    model = module(folder / name)
    weights = load_file(folder / name / "model.safetensors")
    init = max(spread(weights[key], value.detach()) for key, value in model.named_parameters())
    model.load_state_dict(weights, strict=True)
    ours = load_file(folder / (name + ".ours.safetensors"))
    model.double()
    logits, _ = model(tokens)
    loss = model.loss(tokens, targets)
    loss.backward()
    split = max(difference(logits.detach(), in_parts(model, tokens, cuts)) for cuts in parts(tokens.shape[1]))
    names = json.loads((folder / (name + ".names.json")).read_text())
    if set(names.values()) != set(dict(model.named_parameters())):
        sys.exit("error: {}: other parameters".format(name))
    grad, worst = worst_gradient(model, ours, names)
    training_loss, training_grad = training(folder, name, weights, names)
    return {
        "name": name,
        "logits": difference(ours["logits"].double(), logits.detach()),
        "loss": abs(ours["loss"].item() - loss.item()),
        "grad": grad,
        "worst": worst,
        "split": split,
        "init": init,
        "training_loss": training_loss,
        "training_grad": training_grad,
    }


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    for file in sorted(folder.glob("*.ours.safetensors")):
        name = file.name.removesuffix(".ours.safetensors")
        print(json.dumps(compare(folder, name)), flush=True)


main()
