"""No program of a launch of real size leaves its tensors, and no offset wraps in 32 bits.

launches.jsonl has the largest launches of training steps of the 1 B models, which
runtime/src/kernels/cuda/tests/steps.rs records. `edges` has launches at the ends of what the docs promise.
"""

import json
import unittest
from pathlib import Path

from gpu.tests import sparse
from gpu.tests.cases import specs

import triton
import triton.language as tl

from gpu.registry import Spec

FILE = Path(__file__).parent / "launches.jsonl"
WRITE = "CANONC_UPDATE_GPU_STEPS=1 cargo test --workspace steps_of_1b_models writes it"


def recorded() -> list[sparse.Launch]:
    """The launches of launches.jsonl."""
    assert FILE.exists(), f"gpu/tests/{FILE.name} is missing: {WRITE}"
    lines = FILE.read_text().splitlines()
    assert lines, f"gpu/tests/{FILE.name} is empty: {WRITE}"
    return [sparse.Launch.read(specs(), json.loads(line)) for line in lines]


# Tensors that a last program does not read or write to the end: dscores only with READ_FIRST, and to the last element
# but one; g only where fades is not 0; and the last program of ssd_parameters writes dd.
PARTLY = {("gla_key_gradients", "dscores"), ("delta_rows", "g"), ("ssd_parameters", "da")}
# A recorded launch may have only its part of these: some of the norm's sums, one of several operands of a convolution.
SHARED = {"sums", "weight", "bias", "past", "partial_weight", "partial_bias"}


def faults(launch: sparse.Launch, programs, shared: set[str]) -> list[str]:
    """What programs, of which one is the last, do outside their tensors; and which of these they do not fill."""
    outcome = sparse.run(launch, programs)
    found = outcome.faults
    for argument in launch.arguments:
        name, reached = argument.name, outcome.reached.get(argument.name, 0)
        partly = name in shared or (launch.spec.name, name) in PARTLY
        if argument.points and reached != argument.value and not partly:
            found.append(f"{launch}: {name} up to byte {reached} of {argument.value}")
    return found


class Recorded(unittest.TestCase):
    def test_lines_are_launches_of_the_present_kernels(self):
        for launch in recorded():
            launch.check()

    def test_last_programs_reach_the_ends_of_their_tensors_and_no_further(self):
        found = []
        for launch in recorded():
            found += faults(launch, launch.corners(), SHARED)
        self.assertFalse(found, "\n".join(["", *found]))


BF16, F32 = {"dtype": "bf16"}, {"dtype": "f32"}


def loss(constants: dict, rows: int, vocab: int) -> sparse.Launch:
    mode = constants["MODE"]
    given = {"logits": rows * vocab, "targets": rows, "nll": rows, "lse": rows}
    given |= {"likeliest": 0 if mode else rows, "dlogits": rows * vocab if mode else 0}
    given |= {"rows": rows, "vocab": vocab, "logits_row": vocab, "base": 1.0, "nll_factor": 0.0, "lse_factor": 0.0}
    return sparse.Launch.of(specs()["cross_entropy"], constants, given)


def loss_sum(rows: int) -> sparse.Launch:
    given = {"nll": rows, "lse": rows, "targets": rows, "loss": 1, "counted": 1}
    return sparse.Launch.of(specs()["loss_sum"], {}, given | {"rows": rows, "nll_square": 0.0, "z_loss": 0.0})


def norm(
    name: str, constants: dict, tokens: int, heads: int, width: int, apart: int = 0, chunk: int = 64
) -> sparse.Launch:
    """A norm of `tokens` · `heads` rows; tokens are `apart` elements apart, or dense."""
    rows, apart = tokens * heads, apart or heads * width
    spread, dense = (tokens - 1) * apart + heads * width, rows * width
    gated = constants.get("GATE", 0) != 0
    given = {name: spread for name in ("x", "dy")} | {name: dense for name in ("y", "dx")}
    given |= {"gate": spread * gated, "dgate": dense * gated, "weight": width, "rstd": rows, "rnorm": rows}
    given |= {"partial": -(-rows // chunk) * width, "chunk": chunk, "eps": 1e-5}
    given |= {"rows": rows, "heads": heads, "width": width, "x_row": apart, "dy_row": apart, "gate_row": apart * gated}
    return sparse.Launch.of(specs()[name], constants, given)


def update(name: str, constants: dict, count: int) -> sparse.Launch:
    """A launch over a parameter; `count` is a multiple of 16 or not, as after a shard's last block."""
    blocks = -(-count // 16384)
    given = {name: count for name in ("p", "g", "m", "v", "copy")} | {"sums": blocks, "count": count, "first": 0}
    given |= {"coefficient": 1, "norm": 1, "blocks": blocks, "most": 1.0}
    given |= {name: 0.5 for name in ("keep", "beta1", "rest1", "beta2", "rest2", "root", "eps", "rate")}
    if not constants.get("COPY"):
        given["copy"] = 0
    return sparse.Launch.of(specs()[name], constants, given, aligned=count % 16 == 0)


def sums(constants: dict, rows: int, width: int, chunk: int) -> sparse.Launch:
    given = {"x": rows * width, "out": -(-rows // chunk) * width}
    given |= {"rows": rows, "width": width, "chunk": chunk, "x_row": width}
    return sparse.Launch.of(specs()["sum_rows"], constants, given)


def embed(constants: dict, tokens: int, vocab: int, width: int) -> sparse.Launch:
    given = {"dy": tokens * width, "ids": tokens, "order": tokens, "dtable": vocab * width}
    given |= {"tokens": tokens, "vocab": vocab, "width": width, "dy_row": width}
    return sparse.Launch.of(specs()["embed_backward"], constants, given)


def canon(name: str, constants: dict, batch: int, time: int, channels: int, parts: int = 1) -> sparse.Launch:
    """A convolution of the last of `parts` equal parts of a packed projection, or of gate and up in one."""
    row, pair = parts * channels, 2 if name.startswith("conv_swiglu") else 1
    total = (2 if pair == 2 else parts) * channels
    spread, dense = (batch * time - 1) * row + channels, batch * time * channels
    chunks = batch * -(-time // 256)
    given = {name: spread for name in ("x", "dy", "gate", "up")} | {name: dense for name in ("y", "dx", "dgate", "dup")}
    given |= {"weight": total * 4, "bias": total, "past": batch * 3 * total * constants.get("STATE", 0)}
    given |= {"partial_weight": chunks * total * 4, "partial_bias": chunks * total}
    given |= {"batch": batch, "time": time, "channels": channels, "first": total - channels, "total": total}
    given |= {f"{name}_row": row for name in ("x", "dy", "gate", "up")}
    given |= {f"{name}_batch": time * row for name in ("x", "dy", "gate", "up")}
    return sparse.Launch.of(specs()[name], constants, given | {"residual": 1, "has_bias": 1})


def unit(name: str, constants: dict, rows: int, width: int) -> sparse.Launch:
    """The gated unit, of gate and up in one projection."""
    spread, dense = (2 * rows - 1) * width, rows * width
    given = {"gate": spread, "up": spread, "dy": dense, "y": dense, "dgate": dense, "dup": dense}
    given |= {"rows": rows, "width": width, "gate_row": 2 * width, "up_row": 2 * width, "dy_row": width}
    return sparse.Launch.of(specs()[name], constants, given)


def turn(constants: dict, tokens: int, time: int, heads: int, width: int) -> sparse.Launch:
    size = tokens * heads * width
    given = {"x": size, "y": size, "cosine": time * width, "sine": time * width, "rows": tokens * heads}
    given |= {"heads": heads, "width": width, "dims": width, "time": time, "x_row": heads * width, "sign": 1.0}
    return sparse.Launch.of(specs()["rope"], constants, given)


def scans(constants: dict, batch: int, time: int, heads: int, values: int) -> list[sparse.Launch]:
    """All launches of a scan's forward and backward; `constants` choose the family."""
    family = "ssd" if "N" in constants else "gla" if "READ_FIRST" in constants else "delta"
    keys, chunks = constants.get("N", constants.get("K")), -(-time // 64)
    tokens, tasks, groups = batch * time, batch * heads, heads
    q, v, square = tokens * heads * keys, tokens * heads * values, tasks * chunks * 64 * 64
    given = {"B": batch, "T": time, "H": heads, "V": values, "P": values, "G": groups, "scale": 1.0, "has_start": 1}
    given |= {name: v for name in ("v", "y", "dy", "dv", "fresh", "written", "dwritten", "dsolved", "x", "dx", "out")}
    given |= {name: q for name in ("q", "k", "dq", "dk", "faded", "near_q", "near_k")}
    given |= {name: square for name in ("scores", "dscores", "inverse", "pull", "push", "weights")}
    given |= {name: tasks * chunks * keys * values for name in ("states", "gradients")}
    given |= {name: tasks * keys * values for name in ("start", "last")}
    given |= {"rows": 2 * tasks * chunks * 64, "parts": 2 * tasks * chunks, "beta": tokens * heads}
    given |= {name: tokens * heads for name in ("dbeta", "dt", "ddt")}
    given |= {name: heads for name in ("a", "d", "da", "dd")}
    given |= {name: tokens * groups * keys for name in ("b", "c", "db", "dc")}
    given |= {name: q if family == "gla" else tokens * heads for name in ("g", "dg")}
    read_first = constants.get("READ_FIRST", 0)
    given |= {"u": heads * keys * read_first, "bonus": batch * chunks * heads * keys * read_first}
    made = []
    for name, spec in specs().items():
        if not name.startswith(f"{family}_"):
            continue
        own = {key: value for key, value in constants.items() if key in spec.variants[0]}
        if name == "delta_rows":
            # Once for keys, once for values.
            for width, fades in ((keys, 1), (values, 0)):
                size = {"x": tokens * heads * width, "out": tokens * heads * width, "W": width, "fades": fades}
                made.append(sparse.Launch.of(spec, own, given | size))
        else:
            made.append(sparse.Launch.of(spec, own, given))
    return made


def edges() -> list[sparse.Launch]:
    """Launches at the ends of what the docs promise, and beyond a GPU's memory: tensors of up to 2^36 elements."""
    both = (BF16, F32)
    made = [
        loss({**kind, "MODE": mode}, rows, vocab)
        for kind in both
        for mode in (0, 1, 2)
        for rows, vocab in ((131_072, 32_000), (8_192, 128_256), (131_072, 128_256))
    ]
    made.append(loss_sum(2**30 + 1))
    for kind in both:
        made += [
            norm("rms_norm_forward", {**kind, "GATE": 0, "BC": 8192}, 65_536, 1, 8192),
            norm("rms_norm_backward", {**kind, "GATE": 0, "BC": 8192}, 65_536, 1, 8192),
            norm("rms_norm_forward", {**kind, "GATE": 1, "BC": 8192}, 1_048_576, 1, 8192),
            norm("rms_norm_backward", {**kind, "GATE": 1, "BC": 4096}, 1_048_576, 1, 4096),
            norm("rms_norm_backward", {**kind, "GATE": 0, "BC": 4096}, 1_048_576, 1, 4096, chunk=1),
            # Heads of a part of a packed projection, and an odd number of tokens.
            norm("rms_norm_forward", {**kind, "GATE": 2, "BC": 256}, 1_048_575, 32, 256, 24_576),
            norm("rms_norm_backward", {**kind, "GATE": 2, "BC": 256}, 1_048_575, 32, 256, 24_576),
            norm("l2_norm_forward", {**kind, "BC": 128}, 1_048_575, 32, 128, 12_288),
            norm("l2_norm_backward", {**kind, "BC": 128}, 1_048_575, 32, 128, 12_288),
            sums(kind, 262_144, 8192, 512),
            sums(kind, 262_144 + 1, 8192, 262_144 + 1),
            sums(kind, 262_144 + 1, 8192, 1),
            embed(kind, 131_072, 262_144, 8192),
            embed(kind, 1_048_577, 262_144 + 1, 8192),
            turn({**kind, "HALF": 0, "BD": 128}, 1_048_576, 131_072, 64, 128),
            turn({**kind, "HALF": 1, "BD": 128}, 1_048_576, 131_072, 64, 128),
            turn({**kind, "HALF": 0, "BD": 256}, 16_777_216, 16_777_216, 1, 256),
            turn({**kind, "HALF": 1, "BD": 256}, 16_777_216, 16_777_216, 1, 256),
            unit("swiglu_forward", kind, 1_048_576, 22_016),
            unit("swiglu_backward", kind, 1_048_576, 22_016),
        ]
        for parts in (1, 3):
            made += [
                canon("causal_conv_forward", {**kind, "SILU": 1, "STATE": 0}, 64, 32_768, 5632, parts),
                # Rows before the first token are read by a program of the first tokens, which here is the last program.
                canon("causal_conv_forward", {**kind, "SILU": 0, "STATE": 1}, 131_072, 16, 5632, parts),
                canon("causal_conv_backward", {**kind, "SILU": parts // 2}, 64, 32_768, 5632, parts),
                canon("causal_conv_backward", {**kind, "SILU": 0}, 131_072, 16, 5632, parts),
            ]
        made += [
            canon("conv_swiglu_forward", {**kind, "STATE": 0}, 64, 32_768, 5632, 2),
            canon("conv_swiglu_forward", {**kind, "STATE": 1}, 131_072, 16, 5632, 2),
            canon("conv_swiglu_backward", kind, 64, 32_768, 5632, 2),
            canon("conv_swiglu_backward", kind, 131_072, 16, 5632, 2),
            *scans({**kind, "K": 64, "READ_FIRST": 0}, 64, 32_765, 32, 128),
            *scans({**kind, "K": 64, "READ_FIRST": 1}, 64, 32_765, 32, 64),
            *scans({**kind, "K": 128}, 64, 32_765, 32, 256),
            *scans({**kind, "N": 128}, 64, 32_765, 32, 64),
        ]
    # As many heads as a grid takes along y.
    made += scans({**BF16, "K": 128, "READ_FIRST": 0}, 2047, 61, 32, 512)
    made += scans({**BF16, "K": 128}, 2047, 61, 32, 512)
    made += scans({**BF16, "N": 128}, 2047, 61, 32, 512)
    for count in (2**31, 2**31 + 1, 2**31 + 16, 2**33):
        made += [update("square_sums", {}, count), update("clip_coefficient", {}, count)]
        made += [update("adamw", {"COPY": copy}, count) for copy in (0, 1)]
    return made


class Edges(unittest.TestCase):
    def test_every_kernel_has_a_launch(self):
        self.assertEqual(sorted({launch.spec.name for launch in edges()}), sorted(specs()))

    def test_last_programs_reach_the_ends_of_their_tensors_and_no_further(self):
        found = []
        for launch in edges():
            launch.check()
            found += faults(launch, [launch.last()], set())
        self.assertFalse(found, "\n".join(["", *found]))


@triton.jit
def narrow_rows(x, y, rows, width, BLOCK: tl.constexpr):
    """Planted: the row's offset is an i32."""
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    at = row * width + c
    tl.store(y + at, tl.load(x + at, mask=c < width, other=0.0), mask=c < width)


@triton.jit
def narrow_inside(x, y, rows, width, BLOCK: tl.constexpr):
    """Planted: as narrow_rows, in a function that it calls."""
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y + row.to(tl.int64) * width + c, narrow_load(x, row, c, width), mask=c < width)


@triton.jit
def narrow_load(x, row, c, width):
    return tl.load(x + row * width + c, mask=c < width, other=0.0)


@triton.jit
def open_rows(x, y, rows, width, BLOCK: tl.constexpr):
    """Planted: the grid may have a program too many, and no mask."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))


@triton.jit
def long_rows(x, y, rows, width, BLOCK: tl.constexpr):
    """Planted: the loop's last trip ends behind the row."""
    row = tl.program_id(0).to(tl.int64) * width
    for start in range(0, width, BLOCK):
        at = row + start + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at))


def planted(fn, rows: int, width: int, grid: str = "rows", block: int = 1024, y: int | None = None) -> sparse.Launch:
    """x and y [rows, width] bf16, of which y has `y` elements."""
    params = {"x": "*bf16", "y": "*bf16", "rows": "i32", "width": "i32"}
    size = rows * width
    given = {"x": size, "y": size if y is None else y, "rows": rows, "width": width}
    return sparse.Launch.of(Spec(fn, params, [{"BLOCK": block}], grid), {}, given)


class Planted(unittest.TestCase):
    def fault(self, launch: sparse.Launch, widths: bool = True) -> str:
        faults = sparse.run(launch, [launch.last()], widths).faults
        self.assertEqual(len(faults), 1, faults)
        return faults[0]

    def test_an_offset_that_overflows_is_found(self):
        for rows, width in ((131_072, 32_000), (65_536, 65_536)):
            fault = self.fault(planted(narrow_rows, rows, width, block=65_536))
            self.assertIn(f"program ({rows - 1}, 0, 0) of ({rows},) has an int32 overflow", fault)
            self.assertIn("operation mul, at test_real_sizes.py:", fault)

    def test_an_offset_that_wrapped_is_outside(self):
        for rows, width in ((131_072, 32_000), (65_536, 65_536)):
            fault = self.fault(planted(narrow_rows, rows, width, block=65_536), widths=False)
            wrapped = ((rows - 1) * width - 2**32) * 2
            self.assertIn(f"reads x at byte {wrapped} of {rows * width * 2}", fault)

    def test_an_offset_that_wraps_back_inside_is_found(self):
        launch = planted(narrow_rows, 65_537, 65_536, block=65_536)
        self.assertEqual(sparse.run(launch, [launch.last()], widths=False).faults, [])
        self.assertIn("int32 overflow", self.fault(launch))

    def test_an_overflow_in_a_function_names_both_lines(self):
        fault = self.fault(planted(narrow_inside, 131_072, 32_000, block=32_768))
        self.assertRegex(fault, r"overflow .* at test_real_sizes.py:\d+, called by test_real_sizes.py:\d+$")

    def test_a_program_too_many_is_found(self):
        right = planted(open_rows, 131_072, 32_768, grid="rows * width // BLOCK")
        self.assertEqual(sparse.run(right, right.corners()).faults, [])
        fault = self.fault(planted(open_rows, 131_072, 32_768, grid="rows * width // BLOCK + 1"))
        self.assertIn(f"reads x at byte {2**33} of {2**33}", fault)

    def test_the_last_trip_of_a_long_loop_is_run(self):
        fault = self.fault(planted(long_rows, 131_072, 32_000))
        self.assertIn("reads x at byte 8388609534 of 8388608000", fault)

    def test_a_tensor_of_another_size_is_not_taken_for_its_neighbour(self):
        fault = self.fault(planted(open_rows, 131_072, 32_768, grid="rows * width // BLOCK", y=2**32 - 1))
        self.assertIn(f"writes y at byte {2**33 - 2} of {2**33 - 2}", fault)

    def test_a_null_pointer_is_not_followed(self):
        fault = self.fault(planted(open_rows, 131_072, 32_768, grid="rows * width // BLOCK", y=0))
        self.assertIn("writes y, a null pointer, at byte", fault)

    def test_a_line_of_other_kernels_is_refused(self):
        line = {
            "kernel": "clip_coefficient", "constants": {}, "grid": [1, 1, 1], "aligned": True,
            "arguments": [
                {"name": "sums", "type": "*f64", "bytes": 800}, {"name": "norm", "type": "*f64", "bytes": 8},
                {"name": "coefficient", "type": "*f64", "bytes": 8}, {"name": "blocks", "type": "i32", "value": 100},
                {"name": "most", "type": "f64", "value": "inf"},
            ],
        }  # fmt: skip
        launch = sparse.Launch.read(specs(), line)
        launch.check()
        self.assertEqual(sparse.run(launch, launch.corners()).faults, [])
        with self.assertRaisesRegex(AssertionError, r"grid \(2, 1, 1\), wanted \(1,\)"):
            sparse.Launch.read(specs(), {**line, "grid": [2, 1, 1]}).check()
        with self.assertRaisesRegex(AssertionError, "not compiled for {'BR': 3}"):
            sparse.Launch.read(specs(), {**line, "constants": {"BR": 3}})
        line["arguments"][3]["value"] = 2**31
        with self.assertRaisesRegex(AssertionError, "blocks is 2147483648, beyond i32"):
            sparse.Launch.read(specs(), line).check()


if __name__ == "__main__":
    unittest.main()
