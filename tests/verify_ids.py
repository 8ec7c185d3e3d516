#!/usr/bin/env python3
"""Recomputes ids from the texts they cover, with nothing of canonc but the format in docs/locks.md.

    verify_ids.py FILE...

A FILE is a lock, or a JSON list of identities (`name`, `graph_text`, `graph`, `manifest_text`, `manifest`). It prints a
line for each FILE, with the first difference if an id does not follow from its text; then the exit code is 1. Needs
Python 3.11 and the `blake3` package.
"""

import json
import re
import sys
import tomllib

from blake3 import blake3


class Wrong(Exception):
    """An id that does not follow from its text."""


def digest(tag, text):
    return blake3(f"{tag}\n{text}".encode()).hexdigest()


def same(what, claimed, computed):
    if claimed != computed:
        raise Wrong(f"{what}: the text gives {computed}, not {claimed}")


# --- graphs and manifests ---


def check_graph(text, claimed):
    """Every body, then the whole; each body is used, and stands in the text once. Returns how many."""
    bodies, used, whole = set(), set(), None
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        kind, _, name = line.strip().partition(" ")
        if kind not in ("body", "graph") or whole is not None:
            raise Wrong(f"graph text: `{line.strip()}` begins no block")
        inside = []
        for line in lines:
            if line == "end\n":
                break
            inside.append(line)
        else:
            raise Wrong(f"graph text: block {name} has no end")
        content = "".join(inside)
        used.update(re.findall(r"(?:fill|body) ([0-9a-f]{64})", content))
        if kind == "body":
            same("body", name, digest("canonc.body.v1", content))
            if name in bodies:
                raise Wrong(f"body {name} is listed twice")
            bodies.add(name)
        else:
            whole = digest("canonc.graph.v1", content)
            same("graph text", name, whole)
    same("graph", claimed, whole)
    if bodies != used:
        raise Wrong(f"bodies listed and not used, or used and not listed: {sorted(bodies ^ used)}")
    return len(bodies) + 1


def check_manifest(text, claimed):
    same("manifest", claimed, digest("canonc.manifest.v1", text))
    paths = set()
    for line in text.splitlines():
        path = line.split(" ")[0]
        if path in paths:
            raise Wrong(f"{path} is listed twice")
        paths.add(path)
    return 1


def check_identity(graph_text, graph, manifest_text, manifest):
    return check_graph(graph_text, graph) + check_manifest(manifest_text, manifest)


# --- locks ---


def sections(text):
    """The lines of each section as they stand, without headers and blank lines between sections."""
    by_name, name, block = {"": []}, "", False
    for line in text.splitlines(keepends=True):
        header = re.fullmatch(r"\[([^\[\]]+)\]\n", line)
        if not block and header:
            name = header.group(1)
            by_name[name] = []
        elif block or line != "\n":
            by_name[name].append(line)
        if block:
            block = not line.endswith("'''\n")
        else:
            block = line.endswith("= '''\n")
    return {name: "".join(lines) for name, lines in by_name.items()}


def check_experiment(lines, lock, prefix):
    ids = lock["digests"]
    same(f"{prefix}train", ids["train"], digest("canonc.train.v1", lines[f"{prefix}train"]))
    same(f"{prefix}eval", ids["eval"], digest("canonc.eval.v1", lines[f"{prefix}eval"]))
    same(f"{prefix}platform", ids["platform"], digest("canonc.platform.v1", lines[f"{prefix}platform"]))
    last = lines[f"{prefix}eval"].splitlines()[-1]
    same(f"{prefix}eval's train", last, f'train = "{ids["train"]}"')
    return 3


def check_lock(text):
    lock, lines = tomllib.loads(text), sections(text)
    claimed = lock["digests"]["text"]
    without = text.replace(f'\ntext = "{claimed}"\n', "\n", 1)
    same("text", claimed, digest("canonc.lock.v1", without))
    count, kind = 1, lock["kind"]
    if kind == "arch":
        ids = lock["digests"]
        count += check_identity(
            lock["graph"]["text"], ids["graph"], lock["manifest"]["text"], ids["manifest"]
        )
        both = f'graph = "{ids["graph"]}"\nmanifest = "{ids["manifest"]}"\n'
        same("arch", ids["arch"], digest("canonc.arch.v1", both))
        count += 1
    elif kind == "experiment":
        count += check_experiment(lines, lock, "")
    elif kind == "comparison":
        own = lines["comparison"] + lines["verdict"] + lines["runs"]
        same("comparison", lock["digests"]["comparison"], digest("canonc.comparison.v1", own))
        count += 1
        for name, arm in lock["arm"].items():
            count += check_experiment(lines, arm, f"arm.{name}.")
    else:
        raise Wrong(f"no such kind of lock: {kind}")
    return count


def check(path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    if not path.endswith(".json"):
        return check_lock(text)
    count = 0
    for entry in json.loads(text):
        name = entry.pop("name")
        try:
            count += check_identity(**entry)
        except Wrong as wrong:
            raise Wrong(f"{name}: {wrong}") from wrong
    return count


def main(paths):
    if not paths:
        print("usage: verify_ids.py LOCK…", file=sys.stderr)
        return 2
    good = True
    for path in paths:
        try:
            print(f"{path}: {check(path)} ids follow from their text")
        except (Wrong, KeyError, ValueError, TypeError) as wrong:
            print(f"{path}: {type(wrong).__name__}: {wrong}")
            good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
