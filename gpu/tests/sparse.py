"""Single programs of launches of real size, in Triton's interpreter, over a sparse file.

A launch of gigabytes takes none here: its tensors are holes of a file, and only the programs that are asked for run.
What they compute, of zeros, does not matter; every address that a lane reads or writes does. The interpreter sees an
address space of our own, in which arguments are 16 TiB apart; so an address tells which argument it was made from, and
how far it lies outside. Arithmetic in 32 bits that overflows is found as well, also where the wrapped offset happens to
lie inside, and in masked lanes: a mask may follow from the wrapped number.

Of a loop of more than `2 * KEPT` trips, the first and the last `KEPT` run. Kernels make each trip's addresses from its
number, so the extremes are among them. One that adds to a pointer in a loop would need all trips. The loops within a
tile, where a mask may end in the middle, have 16 trips at most, and are whole.
"""

import contextlib
import itertools
import mmap
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

# First: it makes Triton's functions those of the interpreter, before Triton is imported.
from gpu.tests.harness import NUMPY, SCALARS, TRITON

import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter

from gpu.registry import Spec

# Bits of the room of one argument in the address space; its first byte is in the middle.
ROOM = 44
# Trips of a long loop that run, at each of its ends.
KEPT = 8
HIDDEN = (str(Path(triton.__file__).parent), __file__)


class Fault(Exception):
    """What one program did wrong."""


@dataclass(frozen=True)
class Argument:
    """One argument: the type as in the manifest, and the bytes of a tensor (0 for a null pointer) or a number."""

    name: str
    type: str
    value: int | float

    @property
    def points(self) -> bool:
        return self.type.startswith("*")


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel on a grid."""

    spec: Spec
    # Of one variant, complete.
    constants: dict
    grid: tuple[int, ...]
    arguments: tuple[Argument, ...]
    aligned: bool = True

    @classmethod
    def of(cls, spec: Spec, constants: dict, given: dict, aligned: bool = True) -> "Launch":
        """A launch on the grid of the spec's formula. `given` has elements for pointers, and numbers, by name."""
        constants = complete(spec, constants, None)
        arguments = []
        for name, kind in spec.types_of(constants).items():
            size = np.dtype(NUMPY[kind[1:]]).itemsize if kind.startswith("*") else 1
            arguments.append(Argument(name, kind, given[name] * size))
        made = cls(spec, constants, (), tuple(arguments), aligned)
        return cls(spec, constants, made.wanted_grid(), made.arguments, aligned)

    @classmethod
    def read(cls, specs: dict[str, Spec], line: dict) -> "Launch":
        """A line of launches.jsonl."""
        spec = specs.get(line["kernel"])
        assert spec is not None, f"there is no kernel {line['kernel']}"
        arguments = tuple(Argument(a["name"], a["type"], _number(a)) for a in line["arguments"])
        types = {argument.name: argument.type for argument in arguments}
        constants = complete(spec, line["constants"], types)
        return cls(spec, constants, tuple(line["grid"]), arguments, line["aligned"])

    def __str__(self) -> str:
        sizes = {argument.name: argument.value for argument in self.arguments if argument.type in ("i32", "i64")}
        return f"{self.spec.name} {self.constants} {sizes}"

    @property
    def bytes(self) -> int:
        return sum(argument.value for argument in self.arguments if argument.points)

    def wanted_grid(self) -> tuple[int, ...]:
        """The number of programs that the spec's formula gives."""
        known = {a.name: a.value for a in self.arguments if a.type in ("i32", "i64")} | self.constants
        return tuple(eval(f"({self.spec.grid},)", {"cdiv": lambda a, b: -(-a // b)}, known))

    def check(self) -> None:
        """Whether it is a launch of this kernel, as the launcher would make it."""
        wanted = self.spec.types_of(self.constants)
        given = {argument.name: argument.type for argument in self.arguments}
        assert list(given.items()) == list(wanted.items()), f"{self}: arguments {given}, the kernel has {wanted}"
        grid = self.wanted_grid()
        assert self.grid == grid + (1,) * (len(self.grid) - len(grid)), f"{self}: grid {self.grid}, wanted {grid}"
        for argument in self.arguments:
            name, value = argument.name, argument.value
            if argument.points:
                size = np.dtype(NUMPY[argument.type[1:]]).itemsize
                assert value >= 0 and value % size == 0, f"{self}: {name} has {value} bytes"
            elif argument.type[0] == "i":
                bits = np.iinfo(SCALARS[argument.type][0])
                assert bits.min <= value <= bits.max, f"{self}: {name} is {value}, beyond {argument.type}"
                ragged = self.aligned and name in self.spec.divisible and value % 16
                assert not ragged, f"{self}: {name} is {value}, and its image takes multiples of 16"

    def last(self) -> tuple[int, int, int]:
        """The last program."""
        whole = (*self.grid, 1, 1)[:3]
        return tuple(size - 1 for size in whole)

    def corners(self) -> list[tuple[int, int, int]]:
        """The programs that are first or last along each axis; the first is the first, the last the last."""
        return list(itertools.product(*(sorted({0, most}) for most in self.last())))


def _number(argument: dict) -> int | float:
    """The bytes or the value of a line's argument."""
    value = argument["bytes" if argument["type"].startswith("*") else "value"]
    # An infinity is a string, since JSON has none.
    return float(value) if argument["type"] in ("f32", "f64") else value


def complete(spec: Spec, constants: dict, types: dict | None) -> dict:
    """The first variant with these constants and types."""
    for variant in spec.variants:
        same = all(variant.get(key) == value for key, value in constants.items())
        if same and (types is None or spec.types_of(variant) == types):
            return variant
    raise AssertionError(f"{spec.name} is not compiled for {constants} and {types}")


def fill_indices(launch: Launch, name: str, elements: np.ndarray) -> None:
    """Writes the indices that lead furthest, at the end of a tensor; all other elements are zeros."""
    sizes = {argument.name: argument.value for argument in launch.arguments}
    last = elements[-1024:]
    match (launch.spec.name, name):
        case ("cross_entropy", "targets"):
            last[:] = sizes["vocab"] - 1
        case ("embed_backward", "ids"):
            last[:] = sizes["vocab"] - 1
        case ("embed_backward", "order"):
            last[:] = np.arange(len(elements) - len(last), len(elements))


@dataclass
class Outcome:
    """What some programs of a launch did."""

    # At most one of each program.
    faults: list[str]
    # Of each tensor that they touched, the bytes up to the end of the last element that they did.
    reached: dict[str, int]


def run(launch: Launch, programs, widths: bool = True) -> Outcome:
    """Runs some programs of a launch. Without `widths`, arithmetic in 32 bits wraps, as on a GPU."""
    faults = []
    with _Memory(launch) as memory, _language(launch.spec):
        for argument in memory.tensors:
            fill_indices(launch, argument.name, memory.elements(argument))
        for program in programs:
            try:
                _run_one(launch, program, memory, widths)
            except Exception as error:
                while error.__cause__ is not None:
                    error = error.__cause__
                if not isinstance(error, Fault):
                    raise
                faults.append(f"{launch}: program {program} of {launch.grid} {error}")
        return Outcome(faults, memory.reached)


class _Memory:
    """The tensors of a launch: holes of a file without a name."""

    def __init__(self, launch: Launch):
        self.tensors = [argument for argument in launch.arguments if argument.points]
        page = mmap.PAGESIZE
        self.starts = list(itertools.accumulate((-(-a.value // page) * page for a in self.tensors), initial=0))
        self.reached = {}
        self.file = tempfile.TemporaryFile()
        self.file.truncate(max(self.starts[-1], page))
        self.map = mmap.mmap(self.file.fileno(), 0)
        # No read-ahead: a page that no lane touches costs nothing.
        self.map.madvise(mmap.MADV_RANDOM)
        self.address = np.frombuffer(self.map, dtype=np.uint8, count=1).ctypes.data

    def __enter__(self) -> "_Memory":
        return self

    def __exit__(self, *_) -> None:
        self.map.close()
        self.file.close()

    def elements(self, argument: Argument) -> np.ndarray:
        kind = np.dtype(NUMPY[argument.type[1:]])
        start = self.starts[self.tensors.index(argument)]
        count = argument.value // kind.itemsize
        return np.frombuffer(self.map, dtype=kind, count=count, offset=start) if count else np.empty(0, kind)

    def base(self, argument: Argument) -> int:
        """Where the interpreter sees it."""
        return (self.tensors.index(argument) << ROOM) + (1 << ROOM - 1)

    def real(self, addresses: np.ndarray, mask: np.ndarray, size: int, verb: str) -> np.ndarray:
        """The addresses in this process, which every active lane may use."""
        # The interpreter has some masks as integers.
        active = addresses[mask.astype(bool)]
        if not active.size:
            return addresses
        ends = [int(active.min()), int(active.max())]
        for seen in ends:
            tensor = seen >> ROOM
            if tensor >= len(self.tensors):
                raise Fault(f"{verb} address {seen:#x}, far from every argument, at {_place()}")
            argument = self.tensors[tensor]
            offset = seen - self.base(argument)
            if argument.value == 0:
                raise Fault(f"{verb} {argument.name}, a null pointer, at byte {offset}, at {_place()}")
            if offset < 0 or offset + size > argument.value:
                raise Fault(f"{verb} {argument.name} at byte {offset} of {argument.value}, at {_place()}")
            self.reached[argument.name] = max(self.reached.get(argument.name, 0), offset + size)
        if ends[0] >> ROOM != ends[1] >> ROOM:
            raise Fault(f"{verb} two arguments at once, at {_place()}")
        tensor = ends[0] >> ROOM
        moved = self.address + self.starts[tensor] - self.base(self.tensors[tensor])
        # Masked lanes go anywhere, and are not followed.
        return (addresses.astype(np.int64) + moved).astype(np.uint64)


def _place() -> str:
    """The lines of kernels that lead here, the innermost first."""
    lines, frame = [], sys._getframe(1)
    while frame is not None and frame.f_code is not _run_one.__code__:
        if not frame.f_code.co_filename.startswith(HIDDEN):
            lines.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        frame = frame.f_back
    return ", called by ".join(lines)


def _ends(*bounds, num_stages=None):
    """The range, without the middle of a long one."""
    whole = range(*bounds)
    return whole if len(whole) <= 2 * KEPT else itertools.chain(whole[:KEPT], whole[-KEPT:])


@contextlib.contextmanager
def _language(spec: Spec):
    """Triton's functions are those of the interpreter, and long loops short: `range` and `tl.range` are `_ends`, while
    `tl.static_range` stays."""
    plain_core, plain_patch, scopes = interpreter._patch_lang_core, interpreter._patch_lang, {}

    def patch_core(lang, scope):
        plain_core(lang, scope)
        scope.set_attr(lang, "range", _ends)

    def patch(fn):
        # Triton does this in every call of a function, which takes most of the time.
        languages = tuple(name for name, value in fn.__globals__.items() if value is tl or value is tl.core)
        if languages not in scopes:
            scopes[languages] = plain_patch(fn)

    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("gpu.kernels.")]
    modules.append(spec.fn.fn.__globals__)
    interpreter._patch_lang_core, interpreter._patch_lang = patch_core, patch
    for module in modules:
        module["range"] = _ends
    try:
        patch(spec.fn.fn)
        yield
    finally:
        for scope in reversed(scopes.values()):
            scope.restore()
        interpreter._patch_lang_core, interpreter._patch_lang = plain_core, plain_patch
        for module in modules:
            module.pop("range", None)


def _run_one(launch: Launch, program: tuple[int, int, int], memory: _Memory, widths: bool) -> None:
    """One program, as triton.runtime.interpreter.GridExecutor runs each of them."""
    builder, handle = interpreter.interpreter_builder, interpreter.TensorHandle
    plain_load, plain_store = builder.create_masked_load, builder.create_masked_store

    def load(ptrs, mask, other, *rest):
        size = ptrs.get_element_ty().primitive_bitwidth // 8
        return plain_load(handle(memory.real(ptrs.data, mask.data, size, "reads"), ptrs.dtype), mask, other, *rest)

    def store(ptrs, value, mask, *rest):
        size = ptrs.get_element_ty().primitive_bitwidth // 8
        where = handle(memory.real(ptrs.data, mask.data, size, "writes"), ptrs.dtype)
        return plain_store(where, value, mask, *rest)

    def check(condition, message):
        # Triton's own check of each sum, difference and product, which only a debugging build makes.
        if not condition:
            raise Fault(f"has an {message}, at {_place()}")

    def refuse(*_):
        raise Fault(f"has an atomic operation, at {_place()}")

    own = {
        "create_masked_load": load, "create_masked_store": store, "create_assert": check,
        "create_atomic_rmw": refuse, "create_atomic_cas": refuse,
        "options": interpreter.InterpreterOptions(debug=widths),
    }  # fmt: skip
    before = builder.options
    try:
        for name, value in own.items():
            setattr(builder, name, value)
        builder.set_grid_dim(*(*launch.grid, 1, 1)[:3])
        builder.set_grid_idx(*program)
        values = {argument.name: _value(argument, memory) for argument in launch.arguments}
        with np.errstate(all="ignore"):
            launch.spec.fn.rewrite()(**values, **launch.spec.constexprs_of(launch.constants))
    finally:
        for name in own:
            delattr(builder, name)
        builder.options = before


def _value(argument: Argument, memory: _Memory) -> tl.tensor:
    """The argument as the kernel sees it."""
    if argument.points:
        kind = tl.pointer_type(tl.str_to_ty(TRITON[argument.type[1:]], None))
        data = np.array([memory.base(argument)], dtype=np.uint64)
    else:
        exact, kind = SCALARS[argument.type]
        data = np.array([argument.value], dtype=exact)
    return tl.tensor(interpreter.TensorHandle(data, kind), kind)
