"""What the tests of the scans share: launches by name, gates of all strengths, and `ScanTests`, the tests themselves.

A scan gives its recurrence in f64, token by token, and its launches. The recurrence has its gradients by hand;
`check_gradients` compares those with finite differences.
"""

import json
import struct
from pathlib import Path

import numpy as np

from gpu import registry
from gpu.tests import cases, harness
from gpu.tests.harness import Array

# After the harness, which makes Triton interpret.
from triton.language import core  # isort: skip

HERE = Path(__file__).resolve().parent
GOLDEN = (HERE / "golden", HERE.parents[1] / "tests" / "golden" / "mixers")
# Errors relative to the largest element, or to 1: sums in f32, and operands of products rounded to bf16 or not.
TOLERANCE = {"f32": 2e-5, "bf16": 2e-2}
STRENGTHS = (0.0, -1e-4, -0.05, -1.0, -5.0, -20.0, -1000.0)


def _without_names(self, types, fields=None):
    self.types, self.fields, self.name = types, fields or [""] * len(types), ""


# Half of the interpreter's time goes to names of types that nobody reads.
core.tuple_type.__init__ = _without_names


class Launcher:
    """Launches the kernels of one module in the interpreter, and makes their workspaces. Constants are small ones, or,
    where no "CHUNK" is given, those of the compiled variants."""

    def __init__(self, specs: list[registry.Spec], dtype: str, constants: dict, sizes: dict):
        self.specs = {spec.name: spec for spec in specs}
        self.dtype, self.constants, self.sizes, self.arrays = dtype, constants, sizes, {}

    def put(self, **values) -> None:
        """Operands, in the type that the kernels read."""
        for name, value in values.items():
            self.arrays[name] = None if value is None else Array(value, self.kind(name))

    def kind(self, name: str) -> str:
        kinds = {
            kind[1:] if kind != "*T" else self.dtype
            for spec in self.specs.values()
            for key, kind in spec.params.items()
            if key == name
        }
        assert len(kinds) == 1, f"{name}: {kinds}"
        return kinds.pop()

    def room(self, name: str, *shape: int) -> None:
        """Memory for a result or a workspace, full of NaN."""
        self.arrays[name] = Array.empty(shape, self.kind(name))

    def run(self, name: str, **renamed: str) -> None:
        """One launch; an argument is the array of its name, or of another one."""
        spec = self.specs[name]
        given = {**self.constants, "dtype": self.dtype}
        if "CHUNK" in self.constants:
            constants = {key: given[key] for key in spec.variants[0]}
        else:
            fits = [v for v in spec.variants if all(v.get(key, value) == value for key, value in given.items())]
            assert len(fits) == 1, f"{name}: {fits}"
            constants = fits[0]
        args = {
            key: self.arrays[renamed.get(key, key)] if kind.startswith("*") else self.sizes[key]
            for key, kind in spec.params.items()
        }
        names = {**self.sizes, **constants, "cdiv": lambda a, b: -(-a // b)}
        grid = eval(f"({spec.grid},)", {"__builtins__": {}}, names)
        harness.run(spec, grid, args, constants)

    def get(self, name: str) -> np.ndarray:
        return self.arrays[name].values.astype(np.float64)


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Numbers in [-1, 1)."""
    return np.random.default_rng(seed).random(shape) * 2 - 1


def gates(seed: int, strength: float | None, *shape: int) -> np.ndarray:
    """Gates of one strength, or of all in random order."""
    if strength is not None:
        return np.full(shape, -strength)
    return np.random.default_rng(seed).choice(np.array(STRENGTHS), shape)


def stored(values: np.ndarray, kind: str) -> np.ndarray:
    """Values as an array of this type holds them, in f64."""
    values = np.asarray(values, dtype=np.float64)
    rounded = harness.round_bf16(values) if kind == "bf16" else values.astype(np.float32)
    return rounded.astype(np.float64)


def assert_close(got: dict, want: dict, tolerance: float, what: str) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        scale = max(1.0, np.abs(value).max())
        assert got[name].shape == value.shape, f"{what}, {name}: {got[name].shape}, expected {value.shape}"
        off = np.abs(got[name] - value).max() / scale
        assert off <= tolerance, f"{what}, {name}: off by {off:.2e} of {scale:.3g}, {tolerance:.0e} allowed"


def check_gradients(function, operands: dict, dy: np.ndarray, gradients: dict) -> None:
    """`gradients` are those of Σ y dy: along random directions, against central differences."""
    for seed, (name, value) in enumerate(operands.items()):
        direction = numbers(1000 + seed, *value.shape)
        step = 1e-5
        moved = [{**operands, name: value + sign * step * direction} for sign in (1, -1)]
        plus, minus = ((function(**m)[0] * dy).sum() for m in moved)
        got, want = (gradients[name] * direction).sum(), (plus - minus) / (2 * step)
        assert abs(got - want) <= 1e-7 * max(1.0, abs(want)), f"{name}: {got}, by differences {want}"


def golden(name: str) -> tuple[dict, dict]:
    """Tensors and metadata of a file of golden numbers."""
    (path,) = (folder / f"{name}.safetensors" for folder in GOLDEN if (folder / f"{name}.safetensors").exists())
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + length])
    metadata = head.pop("__metadata__", {})
    tensors = {}
    for key, entry in head.items():
        kind = {"F32": np.float32, "F64": np.float64}[entry["dtype"]]
        first, last = entry["data_offsets"]
        raw = data[8 + length + first : 8 + length + last]
        tensors[key] = np.frombuffer(raw, kind).reshape(entry["shape"]).astype(np.float64)
    return tensors, metadata


def pad(value: np.ndarray) -> np.ndarray:
    """Rows of heads, [B, T, H, width] or [H, width], with zeros up to a width of 16; other tensors as they are."""
    if value.ndim not in (2, 4):
        return value
    return np.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, 16 - value.shape[-1])])


def cut(got: dict, want: dict) -> dict:
    """The parts of padded results that `want` has."""
    return {name: got[name][tuple(slice(n) for n in value.shape)] for name, value in want.items()}


class ScanTests:
    """The tests of one scan, for a class that is also a `unittest.TestCase`."""

    # The case of the CPU kernels' numbers, without its number.
    name: str
    # Operands in the order of the scan's definition.
    operands: tuple[str, ...]
    # Those with time as their second axis.
    timed: tuple[str, ...]
    # Small tiles, which the interpreter runs fast.
    tiles: dict
    # Tiles, and arguments of `case`, that exercise the loops over blocks.
    varied: list[tuple[dict, dict]]
    # Strengths of gates: the usual one, a mild one, and those that must be stable.
    usual = None
    mild: object = 0.3
    strengths: tuple = (0.0, 1e-6, 1.0, 50.0, 1e4)
    # Compiled widths of states.
    compiled: tuple = (("bf16", 128), ("f32", 64))
    # Other arguments of the scan in these tests.
    more: dict = {}

    @staticmethod
    def steps(**_) -> tuple[np.ndarray, np.ndarray]:
        """y and the state after, token by token, from operands and perhaps `start`."""
        raise NotImplementedError

    @staticmethod
    def steps_backward(dy, **_) -> dict:
        """The gradients of Σ y dy by operand, from zero state."""
        raise NotImplementedError

    @staticmethod
    def forward(dtype, operands, tiles, start=None, **_) -> dict:
        """y and state, by the kernels."""
        raise NotImplementedError

    @staticmethod
    def backward(dtype, operands, dy, tiles, **_) -> dict:
        """The gradients by operand, by the kernels."""
        raise NotImplementedError

    @staticmethod
    def case(dtype, B, T, H, width, strength, **_) -> dict:
        """Operands as the kernels hold them, with states of width [rows, columns]."""
        raise NotImplementedError

    @staticmethod
    def as_defined(operands) -> dict:
        """The other arguments, as the language asks for them."""
        return {}

    def compare(self, dtype, operands, tiles, what, times=1.0):
        """Forward from a state, and backward, with the recurrence."""
        _, state = self.steps(**operands, **self.more)
        start = stored(numbers(7, *state.shape), "f32")
        y, state = self.steps(**operands, **self.more, start=start)
        got = self.forward(dtype, operands, tiles, start, **self.more)
        assert_close(got, {"y": y, "state": state}, times * TOLERANCE[dtype], what)
        dy = stored(numbers(8, *y.shape), dtype)
        want = self.steps_backward(dy, **operands, **self.more)
        got = self.backward(dtype, operands, dy, tiles, **self.more)
        assert_close(got, want, times * TOLERANCE[dtype], what)

    def compare_golden(self, tensors, operands, tolerance, out="y", folded=()):
        """Tensors of a file of golden numbers, from zero state. Gradients of `folded` operands are summed over channels."""
        more = self.as_defined(operands)
        operands = {name: pad(value) for name, value in operands.items()}
        want = {"y": tensors[f"out/{out}"], "state": tensors["state/S"]}
        got = self.forward("f32", operands, self.tiles, **more)
        assert_close(cut(got, want), want, tolerance, "golden")
        got = self.backward("f32", operands, pad(tensors[f"cot/{out}"]), self.tiles, **more)
        got |= {name: got[name].sum(3) for name in folded}
        want = {name: tensors[f"grad/{name}"] for name in operands if f"grad/{name}" in tensors}
        assert_close(cut(got, want), want, tolerance, "golden")

    def test_reference_gradients_are_those_of_finite_differences(self):
        operands = self.case("f32", 2, 9, 2, (3, 5), self.mild)
        y, _ = self.steps(**operands, **self.more)
        dy = numbers(8, *y.shape)
        gradients = self.steps_backward(dy, **operands, **self.more)
        check_gradients(lambda **moved: self.steps(**moved, **self.more), operands, dy, gradients)

    def test_any_length(self):
        for T in (1, 16, 17, 64, 65, 130):
            with self.subTest(T=T):
                self.compare("f32", self.case("f32", 1, T, 1, (16, 16), self.usual), self.tiles, f"T = {T}")

    def test_tiles_and_types(self):
        for tiles, sizes in self.varied:
            for dtype in ("f32", "bf16"):
                with self.subTest(tiles=tiles, sizes=sizes, dtype=dtype):
                    self.compare(dtype, self.case(dtype, strength=self.usual, **sizes), tiles, dtype)

    def test_gates_of_any_strength(self):
        for strength in self.strengths:
            for dtype in ("f32", "bf16"):
                with self.subTest(strength=strength, dtype=dtype):
                    operands = self.case(dtype, 1, 130, 1, (16, 16), strength)
                    self.compare(dtype, operands, self.tiles, f"{strength}, {dtype}")

    def test_compiled_tiles(self):
        for dtype, width in self.compiled:
            operands = self.case(dtype, 1, 70, 1, (width, width), self.usual)
            self.compare(dtype, operands, {}, f"states of {width} × {width}, {dtype}")

    def test_two_pieces_are_one(self):
        operands = self.case("f32", 1, 100, 1, (16, 16), self.usual)
        whole = self.forward("f32", operands, self.tiles, **self.more)
        for border in (37, 64):
            first, second = (
                {name: value[:, part] if name in self.timed else value for name, value in operands.items()}
                for part in (slice(0, border), slice(border, None))
            )
            one = self.forward("f32", first, self.tiles, **self.more)
            two = self.forward("f32", second, self.tiles, one["state"], **self.more)
            got = {"y": np.concatenate([one["y"], two["y"]], 1), "state": two["state"]}
            assert_close(got, whole, 1e-5, f"cut at {border}")

    def test_the_cpu_kernel(self):
        for number in range(3):
            given = {name: value.astype(np.float64) for name, value in cases.case(f"{self.name}.{number}").items()}
            operands = {name: given[name] for name in self.operands}
            more = self.as_defined(operands)
            for dtype in ("f32", "bf16"):
                with self.subTest(number=number, dtype=dtype):
                    got = self.forward(dtype, operands, self.tiles, given["start"], **more)
                    want = {"y": given["y"], "state": given["state"]}
                    assert_close(got, want, TOLERANCE[dtype], dtype)
                    got = self.backward(dtype, operands, given["dy"], self.tiles, **more)
                    assert_close(got, {name: given[f"d{name}"] for name in operands}, TOLERANCE[dtype], dtype)


class QueryScanTests(ScanTests):
    """The tests of a scan with keys, queries, values and a scale."""

    tiles = {"CHUNK": 64, "BLOCK_K": 16, "BLOCK_V": 16}
    varied = [
        (tiles, {"B": 2, "T": 70, "H": 1, "width": (32, 32)}),
        ({"CHUNK": 32, "BLOCK_K": 32, "BLOCK_V": 32}, {"B": 2, "T": 70, "H": 1, "width": (32, 32)}),
    ]
    more = {"scale": 0.3}

    @staticmethod
    def as_defined(operands):
        return {"scale": operands["q"].shape[3] ** -0.5}
