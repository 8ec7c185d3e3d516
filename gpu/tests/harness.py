"""Runs kernels in Triton's interpreter, over numpy.

`run` takes a `Spec`, a variant's constants, a grid and arguments by name, and the kernel writes into the arguments'
arrays. Guards of NaN around each array, and between its rows, show a kernel that reads or writes outside. bf16 is
rounded to the nearest, ties to even, as on a GPU.

Triton's own interpreter truncates f32 to bf16, multiplies the raw bits of bf16 in `tl.dot`, and adds them as integers.
`_repair` corrects the first two, and makes other arithmetic on bf16 an error: convert to f32 after loading.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from gpu.registry import Spec

NUMPY = {
    "bf16": np.uint16, "f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64,
}  # fmt: skip
TRITON = {"bf16": "bf16", "f32": "fp32", "f64": "fp64", "i32": "i32", "i64": "i64"}
SCALARS = {
    "i32": (np.int32, tl.int32), "i64": (np.int64, tl.int64),
    "f32": (np.float32, tl.float32), "f64": (np.float64, tl.float64),
}  # fmt: skip
GUARD = 512  # elements before and after an array


def to_bf16(values: np.ndarray) -> np.ndarray:
    """The bits of the nearest bf16 of each number, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    quiet = ((bits >> 16) | 0x40).astype(np.uint16)
    return np.where(np.isnan(values), quiet, rounded)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """The f32 values of bf16 bits."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32)


def round_bf16(values: np.ndarray) -> np.ndarray:
    """Numbers rounded to bf16, as f32."""
    return from_bf16(to_bf16(values))


def _repair() -> None:
    builder = interpreter.InterpreterBuilder
    handle, plain_cast = interpreter.TensorHandle, builder.cast_impl
    plain_binary, plain_dot, plain_bits = builder.binary_op, builder.create_dot, builder.create_fp_to_fp

    def wide(src):
        return handle(from_bf16(src.data), tl.float32) if src.dtype.scalar == tl.bfloat16 else src

    def cast_impl(self, src, dst_type):
        if src.dtype.scalar == dst_type.scalar:
            return src
        if dst_type.scalar == tl.bfloat16:
            single = plain_cast(self, src, tl.float32) if src.dtype.scalar != tl.float32 else src
            return handle(to_bf16(single.data), tl.bfloat16)
        src = wide(src)
        return src if src.dtype.scalar == dst_type.scalar else plain_cast(self, src, dst_type)

    def create_fp_to_fp(self, src, dst_type, rounding_mode):
        if tl.bfloat16 in (src.dtype.scalar, dst_type.scalar):
            return cast_impl(self, src, dst_type)
        return plain_bits(self, src, dst_type, rounding_mode)

    def binary_op(self, lhs, rhs, op):
        if tl.bfloat16 in (lhs.dtype.scalar, rhs.dtype.scalar):
            raise TypeError("arithmetic on bf16: convert to f32 after loading")
        return plain_binary(self, lhs, rhs, op)

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        return plain_dot(self, wide(a), wide(b), d, input_precision, max_num_imprecise_acc)

    builder.cast_impl, builder.create_fp_to_fp = cast_impl, create_fp_to_fp
    builder.binary_op, builder.create_dot = binary_op, create_dot


_repair()


class Array:
    """A guarded numpy array that Triton takes for a torch tensor.

    `values` is any array of numbers; `kind` a key of `NUMPY`. Rows, along the last axis, are `row` elements apart; the
    elements between them, like those around the array, are NaN (or a large integer), and must not change.
    """

    def __init__(self, values, kind: str, row: int | None = None):
        values = np.asarray(values)
        self.kind, self.shape = kind, values.shape
        width = values.shape[-1] if values.ndim else 1
        row = width if row is None else row
        assert row >= width, "rows overlap"
        rows = values.size // width if width else 0
        self.whole = np.empty(GUARD * 2 + rows * row, dtype=NUMPY[kind])
        if kind == "bf16":
            self.whole[:] = 0x7FC1
        elif kind in ("f32", "f64"):
            self.whole[:] = np.nan
        else:
            self.whole[:] = 0x5A5A5A5A
        data = to_bf16(values) if kind == "bf16" else values.astype(NUMPY[kind])
        self._inside = self.whole[GUARD : GUARD + rows * row].reshape(rows, row)[:, :width]
        self._inside[...] = data.reshape(rows, width)
        self._outside = np.ones(self.whole.shape, dtype=bool)
        self._outside[GUARD : GUARD + rows * row].reshape(rows, row)[:, :width] = False
        self._before = self.whole[self._outside].tobytes()
        self.dtype = TRITON[kind]

    @classmethod
    def empty(cls, shape, kind: str, row: int | None = None) -> "Array":
        """An array for results, full of NaN (integers: a large number)."""
        fill = 0x5A5A5A5A if kind.startswith("i") else np.nan
        return cls(np.full(shape, fill), kind, row)

    @property
    def values(self) -> np.ndarray:
        """Its numbers: f32 for bf16."""
        data = np.ascontiguousarray(self._inside)
        return (from_bf16(data) if self.kind == "bf16" else data).reshape(self.shape).copy()

    def check_guards(self, name: str) -> None:
        assert self.whole[self._outside].tobytes() == self._before, f"{name}: written outside"

    # What the interpreter asks of a tensor.
    def data_ptr(self) -> int:
        return self.whole.ctypes.data + GUARD * self.whole.itemsize

    def element_size(self) -> int:
        return self.whole.itemsize

    def untyped_storage(self):
        return self

    def cpu(self):
        return self

    def copy_(self, other):
        pass

    def new_empty(self, *_, **__):
        return self

    def set_(self, *_):
        return self

    def storage_offset(self) -> int:
        return 0

    def size(self):
        return self.shape

    def stride(self, *_):
        return tuple(s // self.whole.itemsize for s in self._inside.strides)


def run(spec: Spec, grid: tuple[int, ...], args: dict, constants: dict) -> None:
    """One launch. `constants` is a variant of the spec, or one with the same names: other values may be tested too."""
    types = spec.types_of(constants)
    assert list(args) == list(types), f"{spec.name} takes {list(types)}, not {list(args)}"
    assert all(set(constants) == set(variant) for variant in spec.variants), constants
    passed = {}
    for name, kind in types.items():
        value = args[name]
        if kind.startswith("*"):
            assert value is None or value.kind == kind[1:], f"{name}: {value.kind} for {kind}"
            # A null pointer, which the kernel must not follow.
            passed[name] = Array(np.zeros(0), kind[1:]) if value is None else value
        else:
            assert isinstance(value, (int, float, np.number)), f"{name}: {value!r} for {kind}"
            exact, triton_type = SCALARS[kind]
            assert kind[0] == "f" or int(exact(value)) == value, f"{name}: {value} does not fit in {kind}"
            handle = interpreter.TensorHandle(np.array([value], dtype=exact), triton_type)
            passed[name] = tl.tensor(handle, triton_type)
    with np.errstate(all="ignore"):
        spec.fn[grid](**passed, **spec.constexprs_of(constants))
    for name, value in passed.items():
        if isinstance(value, Array):
            value.check_guards(f"{spec.name}: {name}")
