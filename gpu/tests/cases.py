"""The CPU kernels' operands and results, and how results are compared with them.

They are in cases.safetensors, which the test `gpu_cases` of the crate runtime writes and checks. Operands are exact in
bf16, so a kernel in bf16 has to give the f32 result rounded once.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np

from gpu import registry
from gpu.tests.harness import Array, round_bf16, run

KINDS = ("f32", "bf16")
NUMBERS = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
FILE = Path(__file__).parent / "cases.safetensors"


@cache
def _read() -> dict[str, np.ndarray]:
    data = FILE.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            part = np.frombuffer(data[8 + size :][first:last], dtype=NUMBERS[entry["dtype"]])
            tensors[name] = part.reshape(entry["shape"])
    return tensors


def case(name: str) -> dict[str, np.ndarray]:
    """The tensors of one case, by name."""
    tensors = {key[len(name) + 1 :]: value for key, value in _read().items() if key.startswith(f"{name}/")}
    assert tensors, f"{FILE} has no case {name}"
    return tensors


@cache
def specs() -> dict[str, registry.Spec]:
    return {spec.name: spec for spec in registry.load()}


def variant(name: str, **wanted) -> dict:
    """The first compiled variant with these constants."""
    fits = [v for v in specs()[name].variants if all(v.get(key) == value for key, value in wanted.items())]
    assert fits, f"{name} is not compiled for {wanted}"
    return fits[0]


def launch(name: str, constants: dict, args: dict) -> None:
    """One launch, with the grid that the spec's formula gives."""
    spec = specs()[name]
    known = {key: value for key, value in {**args, **constants}.items() if isinstance(value, int)}
    grid = eval(f"({spec.grid},)", {"cdiv": lambda a, b: -(-a // b)}, known)
    run(spec, grid, args, constants)


def assert_close(got, want, label: str, kind: str = "f32", within: float = 4e-6) -> None:
    """`got` is `want` within a share of the largest element, and rounded once if `kind` is bf16."""
    got = got.values if isinstance(got, Array) else got
    got, want = np.asarray(got, np.float64).reshape(-1), np.asarray(want, np.float64).reshape(-1)
    assert got.shape == want.shape, f"{label}: {got.shape} and {want.shape}"
    bound = within * max(np.abs(want).max(initial=0.0), 0.1)
    low, high = want - bound, want + bound
    if kind == "bf16":
        # Rounding is monotone.
        low, high = round_bf16(low), round_bf16(high)
    wrong = ~((low <= got) & (got <= high))
    first = np.flatnonzero(wrong)[:1]
    assert not wrong.any(), f"{label}: {wrong.sum()} of {wrong.size}, at {first} {got[first]} for {want[first]}"


def tokens_by_channels(x: np.ndarray, kind: str, extra: int = 0) -> Array:
    """[…, c] as rows that are c + extra elements apart."""
    return Array(x.reshape(-1, x.shape[-1]), kind, row=x.shape[-1] + extra)


def add_rows(partial: Array) -> np.ndarray:
    """The second half of a gradient: sum_rows over all rows of [P, …]."""
    rows, width = partial.values.reshape(partial.shape[0], -1).shape
    out = Array.empty((width,), "f32")
    args = {"x": partial, "out": out, "rows": rows, "width": width, "chunk": rows, "x_row": width}
    launch("sum_rows", variant("sum_rows", dtype="f32"), args)
    return out.values
