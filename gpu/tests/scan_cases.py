"""What the tests of the scans share: launches by name, gates of all strengths, recurrences in f64 token by token.

Each reference computes one function and its gradients by hand; `check_gradients` compares those with finite differences.
"""

import json
import struct
from pathlib import Path

import numpy as np

from gpu import registry
from gpu.tests import harness
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
    where only the width ("K" or "N") is given, those of the compiled variants."""

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
        if len(self.constants) > 1:
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


def pad(value: np.ndarray, **axes: int) -> np.ndarray:
    """Zeros behind an axis, given as axis_N = length."""
    for axis, length in axes.items():
        at = int(axis.removeprefix("axis_"))
        widths = [(0, 0)] * value.ndim
        widths[at] = (0, length - value.shape[at])
        value = np.pad(value, widths)
    return value
