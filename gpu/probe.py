#!/usr/bin/env python3
"""Tries the committed images on a GPU, without the Rust program, and times what libtorch reaches beside them.

    probe.py --gpu gpu --out FOLDER [--only images,kernels,torch] [--tokens 16384]
    probe.py --gpu gpu --dry        needs neither a GPU nor torch: checks each launch against the manifest

FOLDER/probe.jsonl gets a line for each result at once, so a stop at any moment loses none. Started again, it leaves out
what has a line there, also what was begun and did not come back. An entry that fails is a line. An illegal access loses
the context, and with it this process: then it exits with code 7, to be started again.
"""

import argparse
import ctypes
import json
import lzma
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

# Sizes of the 1 B models.
WIDTH, HIDDEN, VOCAB, SEQ = 2048, 5632, 32000, 4096
# Chunks of the head.
ROWS = (4096, 8192)
TARGET = "sm_90a"
LOST = 7
BYTES = {"bf16": 2, "f32": 4, "f64": 8, "i64": 8, "i8": 1}
SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float, "f64": ctypes.c_double}


def cdiv(a, b):
    return -(-a // b)


class Manifest:
    """gpu/kernels.json, and the code in gpu/images.bin."""

    def __init__(self, folder):
        self.kernels = json.loads((folder / "kernels.json").read_text())["kernels"]
        self.archive, self.streams = (folder / "images.bin").read_bytes(), {}

    def kernel(self, name, constants):
        """The one kernel with these constants; one that is not named may have any value."""
        fits = [
            kernel
            for kernel in self.kernels
            if kernel["name"] == name and constants.items() <= kernel["constants"].items()
        ]
        if len(fits) != 1:
            raise ValueError(f"the manifest has {len(fits)} kernels {name} with {constants}")
        return fits[0]

    def images(self):
        """(kernel, image) of the target."""
        return [(k, i) for k in self.kernels for i in k["images"] if i["target"] == TARGET]

    def code(self, image):
        offset = image["offset"]
        if offset not in self.streams:
            self.streams[offset] = lzma.decompress(self.archive[offset : offset + image["length"]])
        return self.streams[offset][image["start"] : image["start"] + image["size"]]


@dataclass
class Launch:
    kernel: dict
    image: dict
    grid: tuple
    arguments: list  # of ctypes


def prepare(kernel, given):
    """A launch with these arguments by name: tensors, None or numbers. The image is chosen as the program does."""
    params = [param for param in kernel["params"] if param["type"] != "scratch"]
    wanted = {param["name"] for param in params}
    if wanted != given.keys():
        raise ValueError(f"{kernel['name']}: missing {wanted - given.keys()}, unknown {given.keys() - wanted}")
    aligned, arguments = True, []
    for param in kernel["params"]:
        kind, value = param["type"], given.get(param["name"])
        if hasattr(value, "data_ptr"):
            if not kind.startswith("*") or getattr(value, "kind", kind[1:]) != kind[1:]:
                raise ValueError(f"{kernel['name']}: {param['name']} is {kind}, given a tensor of {value.kind}")
            value = value.data_ptr()
        elif value is None:
            value = 0
        elif kind.startswith("*"):
            raise ValueError(f"{kernel['name']}: {param['name']} is {kind}, given {value!r}")
        if kind == "i32" and not -(2**31) <= value < 2**31:
            raise ValueError(f"{kernel['name']}: {param['name']} is {value}, beyond 32 bits")
        aligned = aligned and not ("divisible" in param and value % param["divisible"])
        arguments.append(SCALARS.get(kind, ctypes.c_uint64)(value))
    numbers = {name: value for name, value in {**given, **kernel["constants"]}.items() if isinstance(value, int)}
    grid = eval(kernel["grid"], {"cdiv": cdiv, "min": min, "max": max}, numbers)
    grid = ((*grid, 1, 1) if isinstance(grid, tuple) else (grid, 1, 1))[:3]
    if not all(0 < size <= most for size, most in zip(grid, (2**31 - 1, 65535, 65535), strict=True)):
        raise ValueError(f"{kernel['name']}: the grid {grid} is out of range")
    image = next((i for i in kernel["images"] if i["target"] == TARGET and i["aligned"] == aligned), None)
    if image is None:
        raise ValueError(f"{kernel['name']}: no image with aligned={aligned}")
    return Launch(kernel, image, grid, arguments)


class Driver:
    """The CUDA driver, in the context that torch made."""

    def __init__(self, manifest):
        self.library, self.manifest, self.functions = ctypes.CDLL("libcuda.so.1"), manifest, {}

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {code} {(text.value or b'').decode()}")

    def function(self, image):
        if image["sha256"] not in self.functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), self.manifest.code(image))
            self.call("cuModuleGetFunction", ctypes.byref(function), module, image["entry"].encode())
            if image["shared"] > 49152:
                self.call("cuFuncSetAttribute", function, 8, image["shared"])
            self.functions[image["sha256"]] = function
        return self.functions[image["sha256"]]

    def attribute(self, function, which):
        value = ctypes.c_int()
        self.call("cuFuncGetAttribute", ctypes.byref(value), which, function)
        return value.value

    def blocks(self, function, image):
        """How many blocks a multiprocessor holds."""
        value, shared = ctypes.c_int(), ctypes.c_size_t(image["shared"])
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        self.call(name, ctypes.byref(value), function, image["warps"] * 32, shared)
        return value.value

    def launch(self, launch, stream):
        pointers = [ctypes.cast(ctypes.pointer(value), ctypes.c_void_p) for value in launch.arguments]
        block, shared = (launch.image["warps"] * 32, 1, 1), launch.image["shared"]
        arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        function = self.function(launch.image)
        self.call("cuLaunchKernel", function, *launch.grid, *block, shared, ctypes.c_void_p(stream), arguments, None)


class Record:
    """probe.jsonl."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "probe.jsonl"
        text = path.read_text(errors="replace") if path.exists() else ""
        before = [row for row in map(self.parse, text.splitlines()) if isinstance(row, dict)]
        self.done = {row["name"] for row in before if "name" in row and "begin" not in row}
        lost = {row["name"] for row in before if "begin" in row} - self.done
        self.file = path.open("a", buffering=1)
        if text and not text.endswith("\n"):
            self.file.write("\n")
        for name in sorted(lost):
            self.say(name=name, error="it did not come back")

    @staticmethod
    def parse(line):
        """None for half a line, which a kill leaves."""
        try:
            return json.loads(line)
        except ValueError:
            return None

    def begin(self, name):
        self.file.write(json.dumps({"name": name, "begin": True}) + "\n")

    def say(self, **row):
        self.file.write(json.dumps(row) + "\n")
        self.done.add(row.get("name"))
        print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)


@dataclass
class Stand:
    """Stands for a tensor where there is no GPU: where it begins, its sizes and elements."""

    address: int
    shape: tuple
    kind: str

    def data_ptr(self):
        return self.address

    def view(self, *shape):
        return Stand(self.address, shape, self.kind)

    def __getitem__(self, rows):
        begin, end, _ = rows.indices(self.shape[0])
        stride = BYTES[self.kind]
        for size in self.shape[1:]:
            stride *= size
        return Stand(self.address + begin * stride, (end - begin, *self.shape[1:]), self.kind)


class DryLab:
    """Checks launches, and computes nothing."""

    dry = True

    def __init__(self, manifest):
        self.manifest, self.next, self.launches = manifest, 1 << 40, []

    def empty(self, *shape, kind="bf16"):
        made = Stand(self.next, shape, kind)
        size = BYTES[kind]
        for length in shape:
            size *= length
        self.next += cdiv(size, 512) * 512  # as torch's allocator does
        return made

    def random(self, *shape, kind="bf16", scale=1.0):
        return self.empty(*shape, kind=kind)

    def integers(self, bound, count):
        return self.empty(count, kind="i64")

    def sort(self, tokens):
        return self.empty(*tokens.shape, kind="i64"), self.empty(*tokens.shape, kind="i64")

    def launch(self, kernel, constants, **given):
        self.launches.append(prepare(self.manifest.kernel(kernel, constants), given))

    def measure(self, name, run, traffic=0, flops=0, check=None, aligned=True):
        """`aligned` is whether it has to take the aligned images."""
        before = len(self.launches)
        run()
        for launch in self.launches[before:]:
            chosen = "aligned" if launch.image["aligned"] else "plain"
            print(f"{name}: {launch.kernel['name']}, {chosen}, grid {launch.grid}")
            if aligned and not launch.image["aligned"]:
                raise ValueError(f"{name}: {launch.kernel['name']} takes the plain image")


class Lab:
    """Tensors on the GPU, launches of our images, and measurements."""

    dry = False

    def __init__(self, manifest, record, torch, skip):
        self.manifest, self.record, self.torch, self.skip = manifest, record, torch, skip
        self.driver = Driver(manifest)
        self.kinds = {"bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "i64": torch.int64}
        self.kinds["i8"] = torch.int8
        # Larger than the cache of any card: written between two timed runs.
        self.flush = self.empty(256 << 20, kind="i8")

    def empty(self, *shape, kind="bf16"):
        return self.torch.empty(*shape, dtype=self.kinds[kind], device="cuda")

    def random(self, *shape, kind="bf16", scale=1.0):
        return (self.torch.randn(*shape, device="cuda") * scale).to(self.kinds[kind])

    def integers(self, bound, count):
        return self.torch.randint(bound, (count,), device="cuda")

    def sort(self, tokens):
        return tokens.sort(stable=True)

    def launch(self, kernel, constants, **given):
        stream = self.torch.cuda.current_stream().cuda_stream
        self.driver.launch(prepare(self.manifest.kernel(kernel, constants), given), stream)

    def milliseconds(self, run, repeats=20):
        """The median."""
        cuda, times = self.torch.cuda, []
        for _ in range(3):
            run()
        for _ in range(repeats):
            self.flush.zero_()
            begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return sorted(times)[repeats // 2]

    def off(self, computed, wanted):
        """The distance of two tensors, relative to the second's norm; NaN if a number is not finite."""
        computed, wanted = computed.float(), wanted.float()
        if not self.torch.isfinite(computed).all():
            return float("nan")
        return float((computed - wanted).norm() / wanted.norm().clamp_min(1e-30))

    def measure(self, name, run, traffic=0, flops=0, check=None, aligned=True):
        """Runs once, checks, and times; `traffic` in bytes."""
        if name in self.skip or name in self.record.done:
            return
        cuda = self.torch.cuda
        self.record.begin(name)
        try:
            run()
            cuda.synchronize()
            offs = {key: float(f"{value:.2e}") for key, value in (check() if check else {}).items()}
            ms = self.milliseconds(run)
            rates = {"GBps": round(traffic / ms / 1e6)} if traffic else {}
            rates |= {"TFLOPs": round(flops / ms / 1e9)} if flops else {}
            # NaN is not JSON.
            offs = {key: value if value == value else "NaN" for key, value in offs.items()}
            bad = {"BAD": 1} if any(value == "NaN" or value > 0.02 for value in offs.values()) else {}
            self.record.say(name=name, ms=round(ms, 4), **rates, **offs, **bad)
        except self.torch.OutOfMemoryError:
            self.record.say(name=name, error="out of memory")
            cuda.empty_cache()
        except Exception as error:
            self.failed(name, error)

    def equal(self, name, run, times):
        """Whether `run` has the same bits each time."""
        if name in self.skip or name in self.record.done:
            return
        self.record.begin(name)
        try:
            first = run()
            same = [
                all(self.torch.equal(a, b) for a, b in zip(first, run(), strict=True)) for _ in range(times)
            ]
            self.record.say(name=name, equal=all(same), times=times)
        except Exception as error:
            self.failed(name, error)

    def failed(self, name, error):
        said = f"{type(error).__name__}: {error}"[:300]
        try:
            self.torch.cuda.synchronize()
        except Exception as lost:
            self.record.say(name=name, error=said, CONTEXT_LOST=str(lost)[:200])
            sys.exit(LOST)
        self.record.say(name=name, error=said)


def images(lab):
    """Registers, local memory and occupancy of each image, beside what the manifest says."""
    for kernel, image in lab.manifest.images():
        alignment = "aligned" if image["aligned"] else "plain"
        name = f"{kernel['name']} {json.dumps(kernel['constants'])} {alignment}"
        if name in lab.record.done:
            continue
        try:
            function = lab.driver.function(image)
            registers, local = lab.driver.attribute(function, 4), lab.driver.attribute(function, 3)
            blocks = lab.driver.blocks(function, image)
            row = {"registers": registers, "local": local, "blocks": blocks, "warps": blocks * image["warps"]}
            bad = registers != image["registers"] or local or not blocks
            bad = {"BAD": 1, "manifest": image["registers"]} if bad else {}
            lab.record.say(name=name, **row, **bad)
        except Exception as error:
            lab.record.say(name=name, BAD=1, error=str(error))


def rms_norm(lab, tokens):
    x, dy, weight = lab.random(tokens, WIDTH), lab.random(tokens, WIDTH), lab.random(WIDTH)
    y, dx, rstd = lab.empty(tokens, WIDTH), lab.empty(tokens, WIDTH), lab.empty(tokens, kind="f32")
    chunks = cdiv(tokens, 64)
    partial, dweight = lab.empty(chunks, WIDTH, kind="f32"), lab.empty(WIDTH, kind="f32")
    variant = {"dtype": "bf16", "GATE": 0, "BC": WIDTH}
    rows = {"rows": tokens, "heads": 1, "width": WIDTH, "x_row": WIDTH, "gate_row": 0}

    def forward():
        lab.launch("rms_norm_forward", variant, x=x, gate=None, weight=weight, y=y, rstd=rstd, eps=1e-5, **rows)

    def backward():
        outputs = {"dx": dx, "dgate": None, "partial": partial}
        inputs = {"dy": dy, "x": x, "gate": None, "weight": weight, "rstd": rstd}
        lab.launch("rms_norm_backward", variant, **inputs, **outputs, dy_row=WIDTH, chunk=64, **rows)
        sum_rows(lab, partial, dweight, chunks, WIDTH)

    def reference():
        a, b = x.float().requires_grad_(), weight.float().requires_grad_()
        out = lab.torch.nn.functional.rms_norm(a, (WIDTH,), b, 1e-5)
        return out.detach(), *lab.torch.autograd.grad(out, (a, b), dy.float())

    def check_backward():
        _, want_dx, want_dweight = reference()
        return {"dx": lab.off(dx, want_dx), "dweight": lab.off(dweight, want_dweight)}

    lab.measure("rms_norm_forward", forward, 4 * tokens * WIDTH, check=lambda: {"y": lab.off(y, reference()[0])})
    # A new process may have left the forward pass out.
    forward()
    lab.measure("rms_norm_backward and sum_rows", backward, 6 * tokens * WIDTH, check=check_backward)


def sum_rows(lab, x, out, rows, width):
    lab.launch("sum_rows", {"dtype": "f32"}, x=x, out=out, rows=rows, width=width, chunk=rows, x_row=width)


def convolved(lab, x, weight):
    """x + its causal convolution; x is [batch, time, channels], weight [channels, 4]."""
    shifted = [lab.torch.nn.functional.pad(x, (0, 0, 3 - tap, 0))[:, : x.shape[1]] for tap in range(4)]
    return x + sum(part * weight[:, tap] for tap, part in enumerate(shifted))


def canon(lab, tokens):
    batch, time = tokens // SEQ, SEQ
    x, dy = lab.random(batch, time, WIDTH), lab.random(batch, time, WIDTH)
    y, dx, weight = lab.empty(batch, time, WIDTH), lab.empty(batch, time, WIDTH), lab.random(WIDTH, 4, scale=0.5)
    forward_variant, variant = {"dtype": "bf16", "SILU": 0, "STATE": 0}, {"dtype": "bf16", "SILU": 0}
    chunks = batch * cdiv(time, lab.manifest.kernel("causal_conv_backward", variant)["constants"]["CHUNK"])
    partial, dweight = lab.empty(chunks, WIDTH * 4, kind="f32"), lab.empty(WIDTH, 4, kind="f32")
    sizes = {"batch": batch, "time": time, "channels": WIDTH, "first": 0, "total": WIDTH}
    sizes |= {"x_batch": time * WIDTH, "x_row": WIDTH, "residual": 1, "has_bias": 0}

    def forward():
        lab.launch("causal_conv_forward", forward_variant, x=x, weight=weight, bias=None, past=None, y=y, **sizes)

    def backward():
        outputs = {"dx": dx, "partial_weight": partial, "partial_bias": partial}
        strides = {"dy_batch": time * WIDTH, "dy_row": WIDTH}
        inputs = {"dy": dy, "x": x, "weight": weight, "bias": None}
        lab.launch("causal_conv_backward", variant, **inputs, **outputs, **strides, **sizes)
        sum_rows(lab, partial, dweight, chunks, WIDTH * 4)

    def check_backward():
        a, b = x.float().requires_grad_(), weight.float().requires_grad_()
        want_dx, want_dweight = lab.torch.autograd.grad(convolved(lab, a, b), (a, b), dy.float())
        return {"dx": lab.off(dx, want_dx), "dweight": lab.off(dweight, want_dweight)}

    bytes_ = tokens * WIDTH * 2
    name = f"causal_conv_forward {WIDTH}"
    lab.measure(name, forward, 2 * bytes_, check=lambda: {"y": lab.off(y, convolved(lab, x.float(), weight.float()))})
    lab.measure(f"causal_conv_backward {WIDTH} and sum_rows", backward, 3 * bytes_, check=check_backward)


def gated(lab, tokens):
    """SwiGLU, alone and behind the convolution of Canon D."""
    batch, time = tokens // SEQ, SEQ
    gate, up, dy = (lab.random(batch, time, HIDDEN) for _ in range(3))
    y, dgate, dup = (lab.empty(batch, time, HIDDEN) for _ in range(3))
    weight = lab.random(2 * HIDDEN, 4, scale=0.5)
    forward_variant, variant = {"dtype": "bf16", "STATE": 0}, {"dtype": "bf16"}
    chunks = batch * cdiv(time, lab.manifest.kernel("conv_swiglu_backward", variant)["constants"]["CHUNK"])
    partial = lab.empty(chunks, 2 * HIDDEN * 4, kind="f32")
    sizes = {"batch": batch, "time": time, "channels": HIDDEN, "residual": 1, "has_bias": 0}
    sizes |= {"gate_batch": time * HIDDEN, "gate_row": HIDDEN, "up_batch": time * HIDDEN, "up_row": HIDDEN}
    rows = {"rows": tokens, "width": HIDDEN, "gate_row": HIDDEN, "up_row": HIDDEN}

    def conv_forward():
        inputs = {"gate": gate, "up": up, "weight": weight, "bias": None, "past": None}
        lab.launch("conv_swiglu_forward", forward_variant, **inputs, y=y, **sizes)

    def conv_backward():
        inputs = {"dy": dy, "gate": gate, "up": up, "weight": weight, "bias": None}
        outputs = {"dgate": dgate, "dup": dup, "partial_weight": partial, "partial_bias": partial}
        strides = {"dy_batch": time * HIDDEN, "dy_row": HIDDEN}
        lab.launch("conv_swiglu_backward", variant, **inputs, **outputs, **strides, **sizes)

    def forward():
        lab.launch("swiglu_forward", {"dtype": "bf16"}, gate=gate, up=up, y=y, **rows)

    def backward():
        outputs = {"dgate": dgate, "dup": dup}
        lab.launch("swiglu_backward", {"dtype": "bf16"}, dy=dy, gate=gate, up=up, dy_row=HIDDEN, **outputs, **rows)

    def silu(x):
        return lab.torch.nn.functional.silu(x)

    # References of the first sequence: all of them in f32 take a third of the memory.
    def conv_reference(a, b):
        filters = weight.float()
        return silu(convolved(lab, a, filters[:HIDDEN])) * convolved(lab, b, filters[HIDDEN:])

    def check_forward(reference):
        return lambda: {"y": lab.off(y[:1], reference(gate[:1].float(), up[:1].float()))}

    def check_backward(reference):
        def check():
            a, b = gate[:1].float().requires_grad_(), up[:1].float().requires_grad_()
            want_dgate, want_dup = lab.torch.autograd.grad(reference(a, b), (a, b), dy[:1].float())
            return {"dgate": lab.off(dgate[:1], want_dgate), "dup": lab.off(dup[:1], want_dup)}

        return check

    def plain_reference(a, b):
        return silu(a) * b

    bytes_ = tokens * HIDDEN * 2
    measure = lab.measure
    measure(f"conv_swiglu_forward {HIDDEN}", conv_forward, 3 * bytes_, check=check_forward(conv_reference))
    measure(f"conv_swiglu_backward {HIDDEN}", conv_backward, 5 * bytes_, check=check_backward(conv_reference))
    measure(f"swiglu_forward {HIDDEN}", forward, 3 * bytes_, check=check_forward(plain_reference))
    measure(f"swiglu_backward {HIDDEN}", backward, 5 * bytes_, check=check_backward(plain_reference))


def rope(lab, tokens):
    heads, width, dims = 32, 64, 64
    x, y = lab.random(tokens, heads, width), lab.empty(tokens, heads, width)
    cosine, sine = lab.random(SEQ, dims, kind="f32"), lab.random(SEQ, dims, kind="f32")
    sizes = {"rows": tokens * heads, "heads": heads, "width": width, "dims": dims, "time": SEQ, "x_row": heads * width}

    def run():
        variant = {"dtype": "bf16", "HALF": 0, "BD": 64}
        lab.launch("rope", variant, x=x, cosine=cosine, sine=sine, y=y, sign=1.0, **sizes)

    def check():
        pairs = x.float().view(-1, SEQ, heads, dims // 2, 2)
        partners, cosines, sines = pairs.flip(-1), *(t.view(SEQ, 1, dims // 2, 2) for t in (cosine, sine))
        return {"y": lab.off(y, (pairs * cosines + partners * sines).view(tokens, heads, width))}

    lab.measure(f"rope {heads} × {width}", run, 4 * tokens * heads * width, check=check)


def cross_entropy(lab, tokens):
    for rows in ROWS:
        logits, targets = lab.random(rows, VOCAB), lab.integers(VOCAB, rows + 2)
        nll, lse = lab.empty(rows, kind="f32"), lab.empty(rows, kind="f32")
        before = None if lab.dry else logits.clone()
        numbers = {"rows": rows, "vocab": VOCAB, "logits_row": VOCAB}
        numbers |= {"base": 1.0, "nll_factor": 0.0, "lse_factor": 0.0}

        def run(targets):
            # The gradient is written over the logits.
            tensors = {"logits": logits, "targets": targets, "nll": nll, "lse": lse, "likeliest": None}
            lab.launch("cross_entropy", {"dtype": "bf16", "MODE": 2}, **tensors, dlogits=logits, **numbers)

        def check():
            cross_entropy = lab.torch.nn.functional.cross_entropy
            return {"nll": lab.off(nll, cross_entropy(before.float(), targets[:rows], reduction="none"))}

        name, traffic = f"cross_entropy, {rows} rows", 6 * rows * VOCAB
        lab.measure(name, lambda: run(targets[:rows]), traffic, check=check)
        # What a chunk that begins at an odd token costs.
        odd = targets[1 : rows + 1]
        lab.measure(f"{name}, targets at a multiple of 8 bytes", lambda: run(odd), traffic, aligned=False)


def update(lab, tokens):
    count = tokens << 14  # parameters: fewer where fewer tokens are asked for
    p, g, m, v = (lab.random(count, kind="f32") for _ in range(4))
    if not lab.dry:
        v.abs_()
    copy, coefficient = lab.empty(count), lab.empty(1, kind="f64")
    if not lab.dry:
        coefficient.fill_(1.0)
    blocks = lab.manifest.kernel("square_sums", {})["constants"]["CHUNK"]
    sums = lab.empty(count // blocks, kind="f64")
    given = {"p": p, "g": g, "m": m, "v": v, "coefficient": coefficient, "count": count}
    given |= {"keep": 0.999, "beta1": 0.9, "rest1": 0.1, "beta2": 0.95, "rest2": 0.05, "root": 1.0}
    given |= {"eps": 1e-8, "rate": 1e-9}

    def plain():
        lab.launch("adamw", {"COPY": 0}, copy=None, **given)

    def with_copy():
        lab.launch("adamw", {"COPY": 1}, copy=copy, **given)

    def square_sums():
        lab.launch("square_sums", {}, g=g, sums=sums, count=count, first=0)

    def check_sums():
        return {"sum": abs(float(sums.sum() / g.double().square().sum()) - 1)}

    lab.measure("adamw, no copy in bf16", plain, 28 * count)
    lab.measure("adamw with its copy in bf16", with_copy, 30 * count, check=lambda: {"copy": lab.off(copy, p)})
    if not lab.dry:
        lab.measure("libtorch: f32 to bf16", lambda: copy.copy_(p), 6 * count)
    lab.measure("square_sums", square_sums, 4 * count, check=check_sums)


def embed_backward(lab, tokens):
    ids = lab.integers(VOCAB, tokens)
    ordered, order = lab.sort(ids)
    dy, dtable = lab.random(tokens, WIDTH), lab.empty(VOCAB, WIDTH, kind="f32")
    sizes = {"tokens": tokens, "vocab": VOCAB, "width": WIDTH, "dy_row": WIDTH}

    def run():
        lab.launch("embed_backward", {"dtype": "bf16"}, dy=dy, ids=ordered, order=order, dtable=dtable, **sizes)

    def check():
        want = lab.torch.zeros(VOCAB, WIDTH, device=dy.device).index_add_(0, ids, dy.float())
        return {"dtable": lab.off(dtable, want)}

    lab.measure("embed_backward", run, 2 * tokens * WIDTH + 4 * VOCAB * WIDTH, check=check)


KERNELS = (rms_norm, canon, gated, rope, cross_entropy, update, embed_backward)


def kernels(lab, tokens):
    """Our kernels at the sizes of a 1 B model's step: right, and how fast."""
    for group in KERNELS:
        try:
            group(lab, tokens)
        except Exception as error:
            if lab.dry:
                raise
            lab.failed(f"operands of {group.__name__}", error)
        if not lab.dry:
            lab.torch.cuda.empty_cache()


def products(lab, tokens):
    """The shapes of a step's products."""
    mm, f32 = lab.torch.mm, lab.torch.float32
    shapes = {
        "8192 × 8192 × 8192": (8192, 8192, 8192),
        "q, k, v, o": (tokens, WIDTH, WIDTH),
        "gate, up": (tokens, HIDDEN, WIDTH),
        "down": (tokens, WIDTH, HIDDEN),
        "dW of q, k, v, o": (WIDTH, WIDTH, tokens),
        "dW of gate, up": (HIDDEN, WIDTH, tokens),
        "logits, 1024 rows": (1024, VOCAB, WIDTH),
        "logits, 4096 rows": (4096, VOCAB, WIDTH),
        "dx of the head, 4096 rows": (4096, WIDTH, VOCAB),
    }
    for name, (rows, columns, inner) in shapes.items():
        a, b, flops = lab.random(rows, inner), lab.random(inner, columns), 2 * rows * columns * inner
        lab.measure(f"mm {name}", lambda: mm(a, b), flops=flops)
        if name.startswith("dW"):
            lab.measure(f"mm {name}, out in f32", lambda: mm(a, b, out_dtype=f32), flops=flops)
            lab.measure(f"mm {name}, then cast", lambda: mm(a, b).float(), flops=flops)
    for rows in (1024, 4096, 8192):
        d, a, total = lab.random(rows, VOCAB), lab.random(rows, WIDTH), lab.random(VOCAB, WIDTH, kind="f32")
        name, flops = f"dW of the head, {rows} rows", 2 * rows * VOCAB * WIDTH
        lab.measure(f"{name}: mm, cast, add", lambda: total.add_(mm(d.t(), a).float()), flops=flops)
        lab.measure(f"{name}: mm in f32, add", lambda: total.add_(mm(d.t(), a, out_dtype=f32)), flops=flops)


def flash(lab, tokens):
    """libtorch's flash attention, deterministic and not."""
    torch, aten, batch, time = lab.torch, lab.torch.ops.aten, tokens // SEQ, SEQ
    for width in (64, 128):
        heads = WIDTH // width
        q, k, v, dy = (lab.random(batch, time, heads, width) for _ in range(4))
        flops = 2 * 2 * batch * heads * time * time * width // 2

        def forward():
            return aten._flash_attention_forward(q, k, v, None, None, time, time, 0.0, True, False)

        lab.measure(f"flash forward, heads of {width}", forward, flops=flops)
        y, lse, state, offset = forward()[:4]

        def backward():
            last = (None, None, time, time, 0.0, True, state, offset)
            return aten._flash_attention_backward(dy, q, k, v, y, lse, *last)

        for deterministic in (False, True):
            torch.use_deterministic_algorithms(deterministic)
            kind = "deterministic" if deterministic else "as fast as can be"
            lab.measure(f"flash backward, heads of {width}, {kind}", backward, flops=flops * 5 // 2)
        lab.equal(f"flash backward, heads of {width}: equal bits", backward, 2)
        torch.use_deterministic_algorithms(False)


def cudnn(lab, tokens):
    """cuDNN's attention."""
    aten, batch, time = lab.torch.ops.aten, tokens // SEQ, SEQ
    lab.torch.use_deterministic_algorithms(False)
    for width in (64, 128):
        heads = WIDTH // width
        q, k, v, dy = (lab.random(batch, time, heads, width).transpose(1, 2) for _ in range(4))
        flops = 2 * 2 * batch * heads * time * time * width // 2

        def forward():
            return aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True, False)

        lab.measure(f"cuDNN forward, heads of {width}", forward, flops=flops)
        y, lse, q_starts, k_starts, q_most, k_most, seed, offset = forward()[:8]

        def backward():
            last = (seed, offset, None, q_starts, k_starts, q_most, k_most, 0.0, True)
            return aten._scaled_dot_product_cudnn_attention_backward(dy, q, k, v, y, lse, *last)

        lab.measure(f"cuDNN backward, heads of {width}", backward, flops=flops * 5 // 2)
        lab.equal(f"cuDNN backward, heads of {width}: equal bits", backward, 20)


def copies(lab, tokens):
    a, b = lab.empty(1 << 30, kind="i8"), lab.empty(1 << 30, kind="i8")
    a.zero_()
    lab.measure("copy of 1 GiB, read and written", lambda: b.copy_(a), 2 << 30)


def ceilings(lab, tokens):
    """What libtorch reaches on this card."""
    for group in (copies, products, flash, cudnn):
        try:
            group(lab, tokens)
        except Exception as error:
            lab.failed(f"operands of {group.__name__}", error)
        lab.torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description="Try the committed images on a GPU from Python.")
    parser.add_argument("--gpu", type=Path, default=Path("gpu"), help="the folder of images.bin and kernels.json")
    parser.add_argument("--out", type=Path, default=Path("."), help="the folder for probe.jsonl")
    parser.add_argument("--only", default="images,kernels,torch", help="sections, with commas")
    parser.add_argument("--skip", default="", help="names of entries, with semicolons")
    parser.add_argument("--tokens", type=int, default=4 * SEQ)
    parser.add_argument("--dry", action="store_true", help="check the launches against the manifest")
    options = parser.parse_args()
    manifest = Manifest(options.gpu)
    if options.dry:
        kernels(DryLab(manifest), options.tokens)
        return 0
    record = Record(options.out)
    try:
        import torch

        torch.zeros(1, device="cuda")  # makes the context
        record.say(gpu=torch.cuda.get_device_name(0), torch=torch.__version__, cudnn=torch.backends.cudnn.version())
        lab = Lab(manifest, record, torch, set(options.skip.split(";")))
        sections = {"images": images, "kernels": kernels, "torch": ceilings}
        for name in options.only.split(","):
            words = [lab] if name == "images" else [lab, options.tokens]
            sections[name](*words)
    except Exception:
        record.say(fatal=traceback.format_exc()[-1500:])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
