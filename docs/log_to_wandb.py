#!/usr/bin/env python3
"""Logs a run of canonc to Weights & Biases, offline: writes what `wandb sync` uploads.

Usage:
  log_to_wandb.py RUN [--out DIR] [--project NAME] [--id ID] [--follow]
  wandb sync DIR/wandb/offline-run-*         uploads; needs an account and a network

RUN is a run's folder, such as runs/demo_llama, finished or not. Everything goes to DIR/wandb [default: .]; nothing is
written to RUN. The run's id is the beginning of its lock's id. Every line of metrics.jsonl is logged under its step,
once: DIR/wandb/canonc-ID.json says how many lines are logged, and the same command later logs the rest as a further
part of the same run (`wandb sync --append` uploads that). --follow goes on until the run ends; Ctrl-C stops between
two lines. The lock's fields are the config, with `lock`, the digest that names the training. Of a run that another engine
trained, the evaluations by `canonc record` are the summary.

Nothing is checked here: `canonc verify RUN` does that. Seen to work with wandb 0.31.0.

Exit codes: 0 logged; 2 RUN cannot be used; 3 Python is older than 3.11 or has no `wandb` package
(`python3 -m pip install wandb`).
"""

import argparse
import json
import os
import re
import sys
import time

try:
    import tomllib

    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb
except ImportError as missing:
    print(f"error: {missing}", file=sys.stderr)
    print("help: use Python 3.11 or newer, and type `python3 -m pip install wandb`", file=sys.stderr)
    sys.exit(3)


class Bad(Exception):
    """What is wrong with the input, and what to do."""


def lines(path, skip):
    """The complete lines after the first `skip`; the last one may still be in writing."""
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1].splitlines()[skip:]
    return [json.loads(line) for line in whole]


def flat(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def config(lock, start):
    """Every field of the lock, without its texts."""
    fields = {"lock": start["lock"], "eval": start["eval"], "name": lock["name"], "source": lock["source"]}
    for section in ["train", "eval", "platform", "cosmetic", "derived"]:
        found = dict(flat(lock.get(section, {})))
        fields.update((key, value) for key, value in found.items() if key != "train")
    fields["arch"] = lock["arch"]["name"]
    return fields


def tag(group, name):
    """The tags that `canonc report --tensorboard` writes."""
    return group + "/" + re.sub(r"[^\w.-]", "_", name)


def number(value):
    """A float; NaN and the infinities are strings in the log."""
    return float(value)


def share(score):
    return score["right"] / score["of"] if score["of"] else None


def values(record, tokens, seconds):
    if record["kind"] == "step":
        found = {tag("training", name): record[member] for name, member in
                 [("training loss", "loss"), ("gradient norm", "grad_norm"), ("learning rate", "lr")]}
        if seconds.get(record["step"], 0) > 0:
            found[tag("speed", "tokens per second")] = tokens / seconds[record["step"]]
    else:
        levels = record["exact_match"]
        all_levels = {key: sum(level[key] for level in levels.values()) for key in ["right", "of"]}
        found = {"eval_loss": record["eval_loss"], "token_accuracy": share(record["token_accuracy"]),
                 "exact_match": share(all_levels), **record.get("measures", {})}
        found.update((f"exact_match, level {level}", share(score)) for level, score in levels.items())
        found = {tag("evaluation", name): value for name, value in found.items()}
    return {name: number(value) for name, value in found.items() if value is not None}


def log(args):
    in_run = lambda name: os.path.join(args.run, name)
    try:
        with open(in_run("lock"), "rb") as file:
            lock = tomllib.load(file)
        start = lines(in_run("metrics.jsonl"), 0)[0]
    except (OSError, IndexError, ValueError) as why:
        raise Bad(f"`{args.run}` is not a run that has begun: {why}") from why
    run_id = args.id or start["lock"][:16]
    state_path = os.path.join(args.out, "wandb", f"canonc-{run_id}.json")
    os.makedirs(os.path.dirname(state_path), exist_ok=True)
    state = {"lock": start["lock"], "lines": 1}
    if os.path.exists(state_path):
        with open(state_path, encoding="utf-8") as file:
            state = json.load(file)
    if state["lock"] != start["lock"]:
        raise Bad(f"`{state_path}` is of lock {state['lock'][:12]}, but the run's is {start['lock'][:12]}: give another --id")
    if not args.follow and state["lines"] > 1 and not lines(in_run("metrics.jsonl"), state["lines"]):
        return f"nothing new: {state['lines'] - 1} logged lines, run {run_id}"
    run = wandb.init(mode="offline", dir=args.out, project=args.project, id=run_id, name=lock["name"],
                     config=config(lock, start), settings=wandb.Settings(x_disable_stats=True, console="off"))
    before, ended, records = state["lines"], False, []
    try:
        while True:
            # Looked for first, so that no line comes after the last look at the log.
            ended = os.path.exists(in_run("attestation.toml"))
            seconds = {line["step"]: line["seconds"] for line in lines(in_run("timings.jsonl"), 0) if "step" in line}
            records = lines(in_run("metrics.jsonl"), state["lines"])
            for record in records:
                # A process that went on elsewhere says so in a line.
                if record["kind"] != "resumed":
                    run.log(values(record, lock["derived"]["batch"]["tokens_per_step"], seconds), step=record["step"])
                state["lines"] += 1
            for record in lines(in_run("evaluations.jsonl"), state.get("evaluations", 0)) if ended else []:
                run.summary.update(values(record, 0, {}))
                state["evaluations"] = state.get("evaluations", 0) + 1
            if ended or not args.follow:
                break
            time.sleep(args.every)
    except KeyboardInterrupt:
        pass
    run.summary["attested"] = ended
    if ended:
        with open(in_run("attestation.toml"), "rb") as file:
            attested = tomllib.load(file)
        run.summary.update({key: attested[key] for key in ["weights", "metrics", "diverged"] if key in attested})
    run.finish()
    with open(state_path + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(state_path + ".new", state_path)
    return f"{state['lines'] - before} of {state['lines'] - 1} logged lines, run {run_id}, in {run.settings.sync_dir}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--out", default=".", metavar="DIR", help="where `wandb/` is [default: .]")
    parser.add_argument("--project", default="canonc", metavar="NAME", help="[default: canonc]")
    parser.add_argument("--id", metavar="ID", help="[default: the first 16 digits of the lock's id]")
    parser.add_argument("--follow", action="store_true", help="go on until the run ends")
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="how often --follow looks [default: 5]")
    try:
        print(log(parser.parse_args()))
    except Bad as why:
        print(f"error: {why}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
