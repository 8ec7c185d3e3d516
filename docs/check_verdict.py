#!/usr/bin/env python3
"""Decides whether two locks differ in a treatment of slots and in nothing else, without canonc.

Usage:
  check_verdict.py A.lock B.lock [TREATMENT ...] [--trainer canonc|pytorch]
  check_verdict.py --batch FILE                      many pairs; prints a JSON list of verdicts

A treatment is canon, slots.A, or arch.layers.0..6.slots.A. --trainer declares who runs both
locks: canonc, or PyTorch by canonc.torch.

Written from docs/locks.md alone. It recomputes every digest of both locks from their text, takes the treated
slots out of both graphs, compares what is left line by line, and compares where the treated slots are.

Exit codes: 0 identical, controlled, or a bundle; 1 confounded; 2 a lock or the treatment cannot be judged;
3 Python is older than 3.11 or has no `blake3` package (`python3 -m pip install blake3`).

FILE for --batch: {"locks": {NAME: TEXT}, "pairs": [[NAME, NAME, [TREATMENT, ...]], ...]}
"""

import difflib
import json
import re
import sys

try:
    import tomllib

    from blake3 import blake3
except ImportError as missing:
    print(f"error: {missing}", file=sys.stderr)
    print("help: use Python 3.11 or newer, and type `python3 -m pip install blake3`", file=sys.stderr)
    sys.exit(3)

EMPTY = "empty"
CANON = "arch.layers.*.slots.*"

# The operand of each projection and table that is its weight.
DECAYED = {"embed": 1, "expert_linear": 2, "latent_attention": 3, "linear": 1, "ngram": 1}


class Bad(Exception):
    """A lock or a treatment that cannot be judged."""


def digest(tag, text):
    return blake3(f"{tag}\n{text}".encode()).hexdigest()


def same(what, claimed, computed):
    if claimed != computed:
        raise Bad(f"{what}: the lock says {claimed}, its text gives {computed}")


# --- Graph text: bodies of nodes ---


class Node:
    """One line of a body: `%3 = HEAD {ATTRS} (OPERANDS) params … states …`."""

    def __init__(self, text):
        self.head, _, rest = text.partition(" {")
        self.attrs, _, rest = rest.rpartition("}")
        self.kind = re.split(r"[ @]", self.head)[0]
        inside = re.match(r" \(([^)]*)\)", rest)
        words = inside.group(1).split() if inside else []
        self.operands = [operand(word) for word in words]
        tail = rest[inside.end() :] if inside else rest
        numbers = re.fullmatch(r"(?: params ([\d ]+?))?(?: states ([\d ]+))?", tail)
        if numbers is None:
            raise Bad(f"not a node: {text}")
        self.params, self.states = ([int(n) for n in (group or "").split()] for group in numbers.groups())
        if self.kind in ("param", "state", "input"):
            self.number = int(self.head.split(" ")[1])
        if self.kind == "param":
            parts = re.fullmatch(r"at (\S+), init (.*), shape (\[[\d,]*\])", self.attrs)
            self.at, self.init, self.shape = parts.groups()
        if self.kind == "slot":
            pattern = r"(\w+), at ([^\s,]+)(?:, reads ([^,]+))?, (?:empty|fill ([0-9a-f]{64}))"
            self.name, self.at, reads, self.body = re.fullmatch(pattern, self.attrs).groups()
            self.reads = (reads or "").split()
        if self.kind == "layer":
            self.body = self.attrs.removeprefix("body ")


def operand(word):
    node, _, port = word.removeprefix("%").partition(".")
    return int(node), int(port) if port else None


class Body:
    def __init__(self, text):
        *lines, last = text.splitlines()
        self.nodes = []
        for number, line in enumerate(lines):
            name, _, rest = line.partition(" = ")
            node = Node(rest)
            if name != f"%{number}" or any(used >= number for used, _ in node.operands):
                raise Bad(f"a node that is out of order: {line}")
            self.nodes.append(node)
        if not last.startswith("return %"):
            raise Bad(f"a body ends with `return`, not with {last}")
        self.outputs = [operand(word) for word in last.split()[1:]]


def order(body, dropped):
    """Nodes that the outputs depend on, depth first, operands in order; and where a value comes from once
    the slots that `dropped` accepts pass their operands on."""

    def source(value):
        while dropped(body.nodes[value[0]]):
            value = body.nodes[value[0]].operands[value[1] or 0]
        return value

    found, seen = [], set()
    for output in body.outputs:
        stack = [(source(output)[0], 0)]
        while stack:
            number, step = stack.pop()
            if step == 0:
                if number in seen:
                    continue
                seen.add(number)
            operands = body.nodes[number].operands
            if step < len(operands):
                stack += [(number, step + 1), (source(operands[step])[0], 0)]
            else:
                found.append(number)
    return found, source


class Numbers(dict):
    """Numbers by first use."""

    def of(self, key):
        return self.setdefault(key, len(self))


class Graph:
    """An open form: its bodies by digest, and the top."""

    def __init__(self, text):
        self.bodies, self.top, used = {}, None, set()
        self.known, self.declared = {}, {}
        lines = iter(text.splitlines(keepends=True))
        for line in lines:
            kind, _, name = line.strip().partition(" ")
            inside = []
            for line in lines:
                if line == "end\n":
                    break
                inside.append(line)
            content = "".join(inside)
            if kind == "body" and self.top is None and name not in self.bodies:
                same("an open body", name, digest("canonc.open-body.v1", content))
                self.bodies[name] = Body(content)
                used.update(node.body for node in self.bodies[name].nodes if node.kind == "slot")
            elif kind == "graph" and self.top is None:
                same("the open form", name, digest("canonc.open.v1", content))
                self.top = Body(content)
                used.update(node.body for node in self.top.nodes if node.kind in ("slot", "layer"))
            else:
                raise Bad(f"the open form has a block `{kind}` that is not expected")
        if self.top is None or set(self.bodies) != used - {None}:
            raise Bad("the open form lists bodies that nothing uses, or lacks one")
        self.layers = [node for node in self.top.nodes if node.kind == "layer"]

    def params(self, body):
        """Of each parameter of a body, by number: its path, its start, its shape."""
        if body in self.declared:
            return self.declared[body]
        found, layer = self.declared.setdefault(body, {}), -1
        for node in body.nodes:
            if node.kind == "param":
                found.setdefault(node.number, ("" if node.at == "." else node.at, node.init, node.shape))
            elif node.kind in ("slot", "layer") and node.body:
                layer += node.kind == "layer"
                at = node.at if node.kind == "slot" else f"layers.{layer}"
                inner = self.params(self.bodies[node.body])
                for number, outer in enumerate(node.params):
                    path, init, shape = inner[number]
                    found.setdefault(outer, (join(at, path), init, shape))
        return found

    def nested(self, name, treated, keep):
        """The text of a body rewritten, its digest, and its parameters and states in their new order."""
        key = (name, frozenset(treated), keep)
        if key not in self.known:
            text, params, states = self.rewritten(self.bodies[name], treated, keep)
            self.known[key] = text, digest("canonc.body.v1", text), params, states
        return self.known[key]

    def rewritten(self, body, treated, keep):
        """A body as graph text. Treated slots are left without their fill (`keep`), or taken out as every
        empty slot is. `treated` is a set of names; of the top it is one for each layer, and for `None`."""
        top = body is self.top
        names = treated.get(None, ()) if top else treated

        def dropped(node):
            return node.kind == "slot" and (not keep if node.name in names else node.body is None)

        nodes, source = order(body, dropped)
        place, params, states, lines, layer = {}, Numbers(), Numbers(), [], 0
        for number in nodes:
            node = body.nodes[number]
            head, attrs, tail = node.head, node.attrs, ""
            if node.kind == "param":
                head = f"param {params.of(node.number)}"
                attrs = f"init {node.init}, shape {node.shape}"
            elif node.kind == "state":
                head = f"state {states.of(node.number)}"
            elif node.kind == "slot" and node.name in names:
                attrs = f"{node.name}, at {node.at}, treated"
            elif node.kind in ("slot", "layer"):
                inside = ()
                if node.kind == "layer":
                    inside, layer = treated.get(layer, ()), layer + 1
                _, inner, own_params, own_states = self.nested(node.body, inside, keep)
                attrs = f"{node.name}, fill {inner}" if node.kind == "slot" else f"body {inner}"
                if own_params:
                    tail += " params " + " ".join(str(params.of(node.params[n])) for n in own_params)
                if own_states:
                    tail += " states " + " ".join(str(states.of(node.states[n])) for n in own_states)
            written = " ".join(shown(place, source(value)) for value in node.operands)
            given = "" if node.kind in ("param", "state", "input") else f" ({written})"
            place[number] = len(lines)
            lines.append(f"%{len(lines)} = {head} {{{attrs}}}{given}{tail}\n")
        lines.append("return " + " ".join(shown(place, source(value)) for value in body.outputs) + "\n")
        return "".join(lines), list(params), list(states)

    def form(self, treated=None, keep=False):
        """The graph's bodies and top, and its manifest, without the fills of the treated slots."""
        text, params, _ = self.rewritten(self.top, treated or {}, keep)
        all_params = self.params(self.top)
        manifest = ""
        for number in params:
            path, init, shape = all_params[number]
            manifest += f"{path} {shape} {init}\n"
        return text, manifest

    def text(self):
        """Graph text: every body in use by digest, then the top."""
        top, _ = self.form()
        found, open_names = {}, [node.body for node in self.top.nodes if node.kind in ("slot", "layer")]
        while open_names:
            name = open_names.pop()
            if name is None:
                continue
            text, inner, _, _ = self.nested(name, (), False)
            if inner not in found:
                found[inner] = text
            open_names += [node.body for node in self.bodies[name].nodes if node.kind == "slot"]
        blocks = "".join(f"body {name}\n{found[name]}end\n" for name in sorted(found))
        return f"{blocks}graph {digest('canonc.graph.v1', top)}\n{top}end\n"

    def fills(self, layer, name):
        """The slot nodes of a name in a layer, or outside of layers."""
        body = self.top if layer is None else None
        if layer is not None and layer < len(self.layers):
            body = self.bodies[self.layers[layer].body]
        return [node for node in body.nodes if node.kind == "slot" and node.name == name] if body else []

    def decayed(self):
        """The paths of all matrices and tables, in the manifest's order, one a line."""
        weights, places = set(), self.params(self.top)
        work = [(self.top, {number: number for number in places})]
        while work:
            body, outer = work.pop()
            for node in body.nodes:
                if node.kind in DECAYED:
                    weight = body.nodes[node.operands[DECAYED[node.kind]][0]]
                    weights.add(outer[weight.number])
                elif node.kind in ("slot", "layer") and node.body:
                    inner = {number: outer[used] for number, used in enumerate(node.params)}
                    work.append((self.bodies[node.body], inner))
        _, order_of_use, _ = self.rewritten(self.top, {}, False)
        paths = [places[number][0] for number in order_of_use if number in weights]
        return "".join(f"{path}\n" for path in paths)

    def is_canon(self, name):
        """Whether a fill is the Canon convolution and nothing else."""
        kinds = [node.kind for node in self.bodies[name].nodes]
        return [kind for kind in kinds if kind not in ("input", "param", "state")] == ["canon"]


def shown(place, value):
    number, port = value
    return f"%{place[number]}" if port is None else f"%{place[number]}.{port}"


def join(prefix, rest):
    if not prefix or not rest:
        return prefix or rest
    return prefix + rest if rest.startswith(".") else f"{prefix}.{rest}"


# --- Locks ---


def sections(text):
    """The lines of each section as they are, without headers and the blank lines between sections."""
    found, name, block = {"": []}, "", False
    for line in text.splitlines(keepends=True):
        header = re.fullmatch(r"\[([^\[\]]+)\]\n", line)
        if not block and header:
            name = header.group(1)
            found[name] = []
        elif block or line != "\n":
            found[name].append(line)
        block = not line.endswith("'''\n") if block else line.endswith("= '''\n")
    return {name: "".join(lines) for name, lines in found.items()}


# The lines of each section (docs/locks.md, section 2). Those marked `?` may be missing. For each task: its parameters, or
# what else is below `data`, and its own lines below `evaluation`.
TASKS = {
    "text": ("add_bos add_eos digest held_out held_out_seed shuffle? source tokenizer weights", "suite_tasks?"),
    "brevo": ("N ans ask bos eos leaves multi query", "mode samples"),
    "capo": ("N people_seed permute pronoun reverse_md", "suite_tasks?"),
    "depo": ("K M N bos max_tlen min_tlen mini_vocab separator", "mode"),
    "lano": ("config", "samples"),
    "mano": ("L bos knowledge_augment lens qids ttype value_mod", "mode"),
    "multihop": ("N hops", "suite_tasks?"),
}
SCHEDULES = {
    "constant": "",
    "cosine": "cycle lr_min_ratio theta warmup",
    "inv_sqrt": "exp_factor lr_min_ratio warmup",
    "linear": "lr_min_ratio warmup",
    "wsd": "cycle decay? decay_fraction lr_min_ratio warmup",
}
TRAIN = """arch.graph arch.manifest batch.in_sequence? batch.micro_batches batch.sequences budget.steps data.loss_on
    data.seq_len data.task
    loss.ahead? loss.balance? loss.kind loss.nll_square loss.router_z? loss.z_loss optimizer.betas optimizer.clip optimizer.decay optimizer.eps optimizer.frozen?
    optimizer.groups? optimizer.kind optimizer.lr optimizer.lr_multipliers? optimizer.weight_decay
    optimizer.weight_decay_multipliers? precision.policy schedule.kind seeds.data seeds.dropout?"""
EVAL = "evaluation.metrics evaluation.windows seeds.eval train"
PLATFORM = """platform.blas platform.cpu_capability platform.device platform.devices? platform.devices_per_node? platform.fuse
    platform.kernels.canon platform.kernels.gated_norm? platform.recompute platform.shard? platform.threads"""
COSMETIC = "budget.given checkpoint.every checkpoint.keep evaluation.every log.every ranks.check_every?"
CARRIED_COSMETIC = """async_eval_gpus compile eval_keep fsdp_type generator_dtype generator_max_tokens harness_tasks
    load_async log_samples prefetch_size probe_freq profiling read_s3 root_dir save_consolidated_to_local save_s3 seed
    show_progress tokenizer_path"""


def expected(train):
    """The lines that an experiment's sections hold, given its task, tokenizer, data, initial weights and schedule."""
    word = {path: value.strip('"') for path, value in train.items()}
    for path in ("data.digest", "data.tokenizer_digest", "init.digest"):
        if not re.fullmatch("unbound|[0-9a-f]{64}", word.get(path, "unbound")):
            raise Bad(f"{path} is {word[path]}, which is no digest")
    task = word["data.task"]
    found = {"train": TRAIN, "eval": EVAL, "platform": PLATFORM, "cosmetic": COSMETIC}
    data, measured = TASKS[task]
    if task == "text":
        if word["data.digest"] != "unbound":
            data = data.replace("source ", "")
            found["cosmetic"] += " data.source"
        if word["data.tokenizer"] != "bytes":
            data += " tokenizer_digest tokenizer_vocab"
            found["cosmetic"] += " evaluation.tokenizer_file?"
        if word.get("data.shuffle") == "buffer":
            data += " shuffle_buffer"
        found["platform"] += " lingua.matmul_allow_tf32?"
        found["cosmetic"] += " data.tokens" + "".join(f" lingua.{name}?" for name in CARRIED_COSMETIC.split())
    else:
        data = " ".join(f"{task}.{name}" for name in data.split()) + " ids order task_digest"
    found["eval"] += "".join(f" evaluation.{name}" for name in measured.split())
    if "suite_tasks?" in measured:
        found["cosmetic"] += " evaluation.suite_data? evaluation.suites?"
    if "init.digest" in word:
        found["train"] += " init.digest init.missing"
        found["train" if word["init.digest"] == "unbound" else "cosmetic"] += " init.weights"
    found["cosmetic" if word.get("init.missing") == "refused" else "train"] += " seeds.init"
    if word["optimizer.decay"] == "matrices":
        found["train"] += " optimizer.decayed"
    if word["optimizer.kind"] == "muon":
        found["train"] += " optimizer.momentum optimizer.muon optimizer.muon_scale optimizer.nesterov"
    found["train"] += "".join(f" data.{name}" for name in data.split())
    found["train"] += "".join(f" schedule.{name}" for name in SCHEDULES[word["schedule.kind"]].split())
    return found


def check_lines(name, lines, listed):
    """Every line that a section must hold is there, and no other is, but revisions of rules."""
    listed = listed.split()
    known, required = {path.rstrip("?") for path in listed}, {path for path in listed if path[-1] != "?"}
    extra = {path for path in lines.keys() - known if name != "train" or not re.fullmatch(r"revision\.\w+", path)}
    if extra:
        raise Bad(f"[{name}] holds {min(extra)}, which does not belong there")
    if required - lines.keys():
        raise Bad(f"[{name}] lacks {min(required - lines.keys())}")


# Keys that canonc carries for another trainer, where they can decide a result.
CARRIED = ["compile", "fsdp_type", "matmul_allow_tf32", "prefetch_size", "root_dir", "seed", "tokenizer_path"]


class Lock:
    """A lock each of whose digests has been recomputed."""

    def __init__(self, text):
        data, self.lines = tomllib.loads(text), sections(text)
        self.kind = data.get("kind")
        if data.get("version") != 3 or self.kind not in ("arch", "experiment"):
            raise Bad("only locks of version 3, of an arch or an experiment, can be compared")
        ids = data["digests"]
        without = text.replace(f'\ntext = "{ids["text"]}"\n', "\n", 1)
        same("digests.text", ids["text"], digest("canonc.lock.v1", without))
        self.graph = Graph(data["open"]["text"])
        top, manifest = self.graph.form()
        self.ids = digest("canonc.graph.v1", top), digest("canonc.manifest.v1", manifest)
        if self.kind == "arch":
            same("digests.graph", ids["graph"], self.ids[0])
            same("digests.manifest", ids["manifest"], self.ids[1])
            both = f'graph = "{self.ids[0]}"\nmanifest = "{self.ids[1]}"\n'
            same("digests.arch", ids["arch"], digest("canonc.arch.v1", both))
            same("[graph]", data["graph"]["text"], self.graph.text())
            same("[manifest]", data["manifest"]["text"], manifest)
        else:
            self.experiment(data, ids)
        self.fields()
        self.slots()
        self.definitions(data["arch"]["text"])

    def experiment(self, data, ids):
        train = facts(self.lines["train"])
        same("train.arch.graph", train["arch.graph"], f'"{self.ids[0]}"')
        same("train.arch.manifest", train["arch.manifest"], f'"{self.ids[1]}"')
        for name in ("train", "eval", "platform"):
            same(f"digests.{name}", ids[name], digest(f"canonc.{name}.v1", self.lines[name]))
        same("eval.train", facts(self.lines["eval"])["train"], f'"{ids["train"]}"')
        for section, listed in expected(train).items():
            check_lines(section, facts(self.lines[section]), listed)
        if "data.task_digest" in train:
            task = train["data.task"].strip('"')
            text = f'task = "{task}"\nrevision = {data["revisions"]["task"][task]}\n'
            for path, value in train.items():
                if path.startswith(f"data.{task}."):
                    text += f"{path.removeprefix(f'data.{task}.')} = {value}\n"
            same("train.data.task_digest", train["data.task_digest"], f'"{digest("canonc.task.v1", text)}"')

        self.updates(train, data.get("updates", {}))

    def updates(self, train, listed):
        """How the optimizer treats parameters, by path: which decay, and the groups; None if the lock does not say."""
        for name in listed:
            if f"optimizer.{name}" not in train:
                raise Bad(f"[updates] lists {name}, but [train] has no optimizer.{name}")
        texts = {"decayed": self.graph.decayed(), "groups": None, **listed}
        self.update = {}
        for name, text in texts.items():
            line = train.get(f"optimizer.{name}")
            if line is not None and text is not None:
                same(f"train.optimizer.{name}", line, f'"{digest(f"canonc.{name}.v1", text)}"')
            rows = (text or "").splitlines() if line is not None else []
            unknown = line is not None and text is None
            self.update[name] = None if unknown else {row.partition(" ")[0]: row.partition(" ")[2] for row in rows}

    def fields(self):
        """The arch's fields by general path and layer."""
        self.cells = {}
        for key, value in facts(self.lines["arch.free"] + self.lines["arch.derived"]).items():
            value = value.strip('"')
            found = re.fullmatch(r"layers\.(\d+)(?:\.\.(\d+)(?:/(\d+))?)?(?:\.(.+))?", key)
            if not found:
                self.cells[f"arch.{key}", None] = value
                continue
            first, end, step, rest = found.groups()
            for layer in range(int(first), int(end or int(first) + 1), int(step or 1)):
                self.cells[f"arch.layers.*.{rest}" if rest else "arch.layers.*", layer] = value

    def slots(self):
        """Each slot of the open form is filled or empty as its field says."""
        places = [("arch.head", None, self.graph.top)]
        places += [("arch.layers.*", n, self.graph.bodies[node.body]) for n, node in enumerate(self.graph.layers)]
        for holder, layer, body in places:
            for node in body.nodes:
                if node.kind == "slot":
                    field = self.cells.get((f"{holder}.slots.{node.name}", layer))
                    if field is None or (field == EMPTY) != (node.body is None):
                        raise Bad(f"slot {node.name} of layer {layer}: the fields and the open form disagree")

    def definitions(self, text):
        """What each definition of the arch's text says, whatever it and those it uses are called."""
        own, name, self.meaning = {}, None, {}
        for line in text.splitlines():
            start = re.match(r"(?:block|mixer|mlp|head|init|arch) (\w+)", line)
            if start:
                name = None if line.startswith("arch ") else start.group(1)
            if name and line:
                own[name] = own.get(name, "") + line + "\n"

        def meaning(name):
            if name not in self.meaning:
                self.meaning[name] = name

                def word(found):
                    used = found.group()
                    return "it" if used == name else meaning(used) if used in own else used

                self.meaning[name] = digest("definition", re.sub(r"[A-Za-z_]\w*", word, own[name]))
            return self.meaning[name]

        for name in own:
            meaning(name)

    def value(self, path, layer):
        """What a field is; a slot that nothing declares is as empty as one that nothing fills."""
        found = self.cells.get((path, layer))
        there = layer is None or ("arch.layers.*", layer) in self.cells
        return EMPTY if found is None and there and slot_of(path) else found


def facts(lines):
    found = {}
    for line in lines.splitlines():
        key, _, value = line.partition(" = ")
        found[key.strip('"')] = value
    return found


def slot_of(path):
    _, found, name = path.rpartition(".slots.")
    return name if found and "." not in name else None


# --- Treatments ---


def pattern(text):
    """A path as general path, which layers it means, and their range as written."""
    layers = r"(\*|\d+(?:\.\.\d+)?(?:/\d+)?)"
    found = re.fullmatch(rf"arch\.layers(?:\.{layers}|\[{layers}\])(?:\.(.+))?", text, re.ASCII)
    if not found:
        return text, lambda layer: True, None
    chosen, rest = found[1] or found[2], found[3]
    general = f"arch.layers.*.{rest}" if rest else "arch.layers.*"
    if chosen == "*":
        return general, lambda layer: True, None
    span, _, step = chosen.partition("/")
    first, _, end = span.partition("..")
    layers = range(int(first), int(end or int(first) + 1), int(step or 1))
    return general, lambda layer: layer is None or layer in layers, layers


def resolve(entry, a, b):
    """The slots an entry means where the arms differ, and how many factors it counts."""
    full = CANON if entry.strip() == "canon" else entry.strip()
    paths = sorted({path for path, _ in [*a.cells, *b.cells]})
    general, selected, layers = pattern(full)
    count = len({layer for arm in (a, b) for path, layer in arm.cells if path == "arch.layers.*"})
    if layers is not None and (layers.stop > count or layers.start >= layers.stop):
        raise Bad(f"treatment `{entry}`: the arms have {count} layers")
    means = general.removesuffix(".slots.*") + ".slots." if general.endswith(".slots.*") else None
    found = [p for p in paths if p == general or means and slot_of(p) and p == means + slot_of(p)]
    if not found:
        selected = lambda layer: True  # noqa: E731
        found = [path for path in paths if path.endswith(f".{full}")]
    if not found:
        slots = sorted({path for path in paths if slot_of(path)})
        raise Bad(
            f"treatment `{entry}`: neither arm has a field `{full}`: write `canon`, or a slot by its path, such as"
            f" {' or '.join(f'`{path}`' for path in slots[:3]) or '`arch.layers.*.slots.A`'}"
        )
    if not all(slot_of(path) for path in found):
        raise Bad(f"treatment `{entry}`: only treatments of slots can be judged by text alone")
    cells = []
    for path, layer in sorted({*a.cells, *b.cells}, key=str):
        there = layer is None or all(("arch.layers.*", layer) in arm.cells for arm in (a, b))
        if path not in found or not selected(layer) or not there:
            continue
        ours, theirs = a.value(path, layer), b.value(path, layer)
        renamed = ours == theirs and a.meaning.get(ours) != b.meaning.get(theirs)
        if ours == theirs and not renamed:
            continue
        if full != CANON or canon_only(a, b, layer, slot_of(path)):
            cells.append((path, layer))
    if not cells:
        raise Bad(f"treatment `{entry}`: the arms agree on it, or what differs is not a Canon layer")
    return cells, 1 if full == CANON else len({path for path, _ in cells})


def canon_only(a, b, layer, name):
    """Whether a slot of a layer holds a Canon layer in one arm, and the same or nothing in the other."""
    if layer is None:
        return False
    fills = [(arm, node) for arm in (a, b) for node in arm.graph.fills(layer, name) if node.body]
    return bool(fills) and all(arm.graph.is_canon(node.body) for arm, node in fills)


# --- The verdict ---


def verdict(a, b, treatment, known_trainer=False):
    """The outcome, how many factors, and every line that differs although it is not the treatment."""
    if a.kind != b.kind:
        raise Bad(f"an {a.kind} and an {b.kind} cannot be compared")
    entries = [resolve(entry, a, b) for entry in treatment]
    cells = [cell for found, _ in entries for cell in found]
    if len(set(cells)) < len(cells):
        raise Bad("a slot is in the treatment twice")
    one_sided = [cell for cell in cells if not all(cell in arm.cells for arm in (a, b))]
    for path, layer in one_sided:
        if layer is not None:
            raise Bad(f"treatment {path}: the definitions of one arm do not declare this slot in layer {layer}")
    left = []
    treated = {}
    for path, layer in cells:
        treated.setdefault(layer, set()).add(slot_of(path))
    if not one_sided:
        for entry, (found, _) in zip(treatment, entries):
            if all(bodies(a, cell) == bodies(b, cell) for cell in found):
                raise Bad(f"treatment `{entry}`: it makes no difference to what is computed")
    left += graphs_left(a.graph, b.graph, treated)
    for path, layer in cells:
        left += settings_left(a, b, path, layer)
    for key in sorted({*a.cells, *b.cells}, key=str) if cells else ():
        if key[0].endswith(".share") and a.cells.get(key) != b.cells.get(key):
            left.append(f"{key[0]} of layer {key[1]}: {a.cells.get(key)} in a, {b.cells.get(key)} in b")
    if a.kind == "experiment":
        left += updates_left(a, b, treated)
        follow = ["arch.graph", "arch.manifest", "optimizer.decayed", "optimizer.groups", "train"]
        for section in ("train", "eval"):
            ours, theirs = facts(a.lines[section]), facts(b.lines[section])
            for path in sorted({*ours, *theirs}):
                if path not in follow and ours.get(path) != theirs.get(path):
                    left.append(f"{section}: {path} is {ours.get(path)} in a, {theirs.get(path)} in b")
        carried = [f"lingua.{name}" for name in CARRIED if not known_trainer]
        ours, theirs = (facts(arm.lines["platform"] + arm.lines["cosmetic"]) for arm in (a, b))
        for path in carried:
            if ours.get(path) != theirs.get(path):
                left.append(f"{path}, which another trainer reads: {ours.get(path)} in a, {theirs.get(path)} in b")
    factors = sum(count for _, count in entries)
    words = {0: "identical", 1: "controlled"}
    return "confounded" if left else words.get(factors, "bundle"), factors, left


# Facts of where text comes from and how it becomes tokens.
RECORDS = ["data.tokenizer", "data.tokenizer_digest", "data.tokenizer_vocab", "lingua.root_dir", "lingua.tokenizer_path"]


def assumed(a, b, known_trainer=False):
    """Inputs that both locks give one name and no digest: whether they are equal, no lock can say."""
    if a.kind != "experiment" or b.kind != "experiment":
        return []
    sections = ("train", "platform", "cosmetic")
    ours, theirs = (facts("".join(arm.lines[name] for name in sections)) for arm in (a, b))
    if not known_trainer and any(ours.get(path) != theirs.get(path) for path in RECORDS):
        return []  # their records differ, so that one name says nothing
    found = []
    named = (("data.source", "data.digest"), ("data.tokenizer", "data.tokenizer_digest"), ("init.weights", "init.digest"))
    for path, known in named:
        opened = ours.get(known) == theirs.get(known) == '"unbound"'
        if opened and path in ours and ours[path] == theirs.get(path):
            found.append(f"{path} = {ours[path]}")
    return found


def bodies(arm, cell):
    path, layer = cell
    return [(node.at, node.body) for node in arm.graph.fills(layer, slot_of(path))]


def graphs_left(a, b, treated):
    """Lines that differ once the treated slots have no fill: of the layers, of what is around them, of the
    manifest. First the slots are taken out of both (erasure), then they are kept without their fills, which
    compares where they are as well."""
    left = []
    for keep in (False, True) if treated else (False,):
        (ours, our_manifest), (theirs, their_manifest) = a.form(treated, keep), b.form(treated, keep)
        if ours != theirs:
            seen = set()
            for layer in range(max(len(a.layers), len(b.layers))):
                pair = [body_of(graph, layer, treated, keep) for graph in (a, b)]
                if pair[0] != pair[1] and tuple(pair) not in seen:
                    seen.add(tuple(pair))
                    left += changed(f"layer {layer}", *pair)
            if not seen:
                left += changed("graph", ours, theirs)
        if our_manifest != their_manifest:
            left += changed("manifest", our_manifest, their_manifest)
        if left:
            break
    return left


def updates_left(a, b, treated):
    """Parameters outside the treated slots that the optimizer treats in two ways: their roles differ, which no
    graph shows."""
    paths = {line.partition(" ")[0] for arm in (a, b) for line in arm.graph.form(treated)[1].splitlines()}
    left = []
    for name in ("decayed", "groups"):
        digests = [facts(arm.lines["train"]).get(f"optimizer.{name}") for arm in (a, b)]
        ours, theirs = a.update[name], b.update[name]
        if digests[0] == digests[1]:
            continue
        if ours is None or theirs is None:
            raise Bad("a lock without [updates] does not list its optimizer.groups: `canonc build` writes it again")
        left += [
            f"optimizer.{name} of {path}: {ours.get(path, 'no line') or 'a line'} in a, {theirs.get(path, 'no line') or 'a line'} in b"
            for path in sorted(paths)
            if ours.get(path) != theirs.get(path)
        ]
    return left


def body_of(graph, layer, treated, keep):
    if layer >= len(graph.layers):
        return ""
    return graph.nested(graph.layers[layer].body, treated.get(layer, ()), keep)[0]


def changed(what, ours, theirs):
    lines = difflib.unified_diff(ours.splitlines(), theirs.splitlines(), lineterm="", n=0)
    return [f"{what}: {line}" for line in lines if not re.match(r"(---|\+\+\+|@@)", line)]


def settings_left(a, b, path, layer):
    """What a treated slot brings that is not the treatment: a setting that both fills have and that differs,
    and a part of the arch that a fill reads and that differs."""
    left, below = [], f"{path}."
    if EMPTY not in (a.value(path, layer), b.value(path, layer)):
        for key in sorted({key for key in [*a.cells, *b.cells] if key[0].startswith(below) and key[1] == layer}):
            ours, theirs = a.cells.get(key), b.cells.get(key)
            plain = key[0] == f"{path}.init" and not any(
                arm.value(path, layer) in arm.meaning for arm in (a, b)
            )
            if ours != theirs and (None not in (ours, theirs) or plain):
                left.append(f"{key[0]} of layer {layer}: {ours} in a, {theirs} in b")
    for arm in (a, b):
        for node in arm.graph.fills(layer, slot_of(path)):
            for name in node.reads:
                ours, theirs = (one.cells.get((f"arch.{name}", None)) for one in (a, b))
                line = f"arch.{name}, which a fill of slot {node.name} reads: {ours} in a, {theirs} in b"
                if ours != theirs and line not in left:
                    left.append(line)
    return left


# --- The command line ---


def judged(make):
    """A verdict as JSON; what cannot be judged is refused."""
    try:
        (outcome, factors, left), by_name = make()
        return {"outcome": outcome, "factors": factors, "left": left, "assumed": by_name}
    except (Bad, KeyError, ValueError, TypeError, AttributeError, IndexError) as why:
        message = str(why) if isinstance(why, Bad) else f"not a lock as docs/locks.md has it: {why!r}"
        return {"outcome": "refused", "factors": 0, "left": [message], "assumed": []}


def batch(path):
    with open(path, encoding="utf-8") as file:
        work = json.load(file)
    locks, found = {}, []
    for a, b, treatment in work["pairs"]:

        def make(a=a, b=b, treatment=treatment):
            for name in (a, b):
                if name not in locks:
                    locks[name] = Lock(work["locks"][name])
            return verdict(locks[a], locks[b], treatment), assumed(locks[a], locks[b])

        found.append(judged(make))
    json.dump(found, sys.stdout, indent=1)
    return 0


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def main(args):
    if len(args) == 2 and args[0] == "--batch":
        return batch(args[1])
    if len(args) < 2 or args[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if args[:1] in (["-h"], ["--help"]) else 2
    try:
        known_trainer = args[-2:] in (["--trainer", "canonc"], ["--trainer", "pytorch"])
        args = args[:-2] if known_trainer else args
        texts = [read(path) for path in args[:2]]
    except (OSError, UnicodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    def make():
        locks = [Lock(text) for text in texts]
        return verdict(*locks, args[2:], known_trainer), assumed(*locks, known_trainer)

    found = judged(make)
    outcome = found["outcome"]
    treatment = ", ".join(args[2:]) or "no treatment"
    count = f" of {found['factors']} factors" if outcome == "bundle" else ""
    print(f"{outcome}{count} ({treatment})")
    for line in found["left"]:
        print(f"  {line}")
    for line in found["assumed"]:
        print(f"  both read {line}, which has no digest yet: assumed equal by name")
    return {"confounded": 1, "refused": 2}.get(outcome, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
