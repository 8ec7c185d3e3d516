"""The list of GPU kernels: their parameters, variants and launch sizes.

In: the modules in gpu/kernels, each with a list `SPECS`. Out: every `Spec`, sorted by name. Must stay true: a spec
names every parameter of its function exactly once, as a launch parameter or as a constant, so what build.py writes to
the manifest is what the launcher passes.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field

# Types of launch parameters, as the manifest spells them, and Triton's names for them.
TYPES = {
    "*bf16": "*bf16", "*f32": "*fp32", "*f64": "*fp64", "*i32": "*i32", "*i64": "*i64",
    "i32": "i32", "i64": "i64", "f32": "fp32", "f64": "fp64",
}  # fmt: skip
DTYPES = ("bf16", "f32")


@dataclass(frozen=True)
class Spec:
    """One kernel and the variants that are compiled."""

    # The function under @triton.jit.
    fn: object
    # Launch parameters in order, with their types. "*T" is a pointer to the variant's "dtype".
    params: dict[str, str]
    # Constants of each variant. "dtype" is "bf16" or "f32"; the others are constexpr parameters of the function.
    variants: list[dict]
    # Number of programs, as a formula over parameters and constants; up to three, separated by commas.
    grid: str
    # Integer parameters that are multiples of 16 in the aligned images. Pointers are, except `scalars`.
    divisible: tuple[str, ...] = ()
    # Warps of a program: a number, or a function of the variant's constants and of whether the image is aligned.
    warps: int | Callable[[dict, bool], int] = 4
    # Loads ahead in a pipelined loop.
    stages: int = 1
    # Only aligned images: other operands take the composed form of libtorch.
    aligned_only: bool = False
    # Other options of the compiler, such as maxnreg.
    options: dict = field(default_factory=dict)
    # Pointers that each program reads or writes one element at a time. They may begin anywhere: nothing can be wider.
    scalars: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.fn.__name__

    @property
    def alignments(self) -> tuple[bool, ...]:
        """Whether its images are aligned, in the manifest's order."""
        return (True,) if self.aligned_only else (True, False)

    def warps_of(self, constants: dict, aligned: bool) -> int:
        return self.warps(constants, aligned) if callable(self.warps) else self.warps

    @property
    def hinted(self) -> tuple[str, ...]:
        """The parameters that are multiples of 16 in the aligned images."""
        return tuple(
            name
            for name, kind in self.params.items()
            if name in self.divisible or (kind.startswith("*") and name not in self.scalars)
        )

    def types_of(self, constants: dict) -> dict[str, str]:
        """The launch parameters of a variant, without "*T"."""
        return {
            name: f"*{constants['dtype']}" if kind == "*T" else kind
            for name, kind in self.params.items()
        }

    def constexprs_of(self, constants: dict) -> dict:
        """The constexpr parameters of a variant."""
        return {name: value for name, value in constants.items() if name != "dtype"}

    def check(self) -> None:
        names = list(self.fn.arg_names)
        for constants in self.variants:
            wanted = [*self.params, *self.constexprs_of(constants)]
            if sorted(wanted) != sorted(names) or names[: len(self.params)] != list(self.params):
                raise ValueError(f"{self.name} has parameters {names}, its spec {wanted}")
            unknown = set(self.types_of(constants).values()) - set(TYPES)
            if unknown or constants.get("dtype", "f32") not in DTYPES:
                raise ValueError(f"{self.name}: unknown types {unknown} or dtype in {constants}")
        for name in self.divisible:
            if self.params.get(name) not in ("i32", "i64"):
                raise ValueError(f"{self.name}: {name} is not an integer parameter")
        for name in self.scalars:
            if not self.params.get(name, "").startswith("*"):
                raise ValueError(f"{self.name}: {name} is not a pointer")


def with_dtypes(*variants: dict) -> list[dict]:
    """Each variant in bf16 and in f32."""
    return [{"dtype": dtype, **variant} for variant in variants for dtype in DTYPES]


def load() -> list[Spec]:
    """Every kernel of gpu/kernels, by name."""
    import gpu.kernels as folder

    modules = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    specs = [
        spec
        for module in modules
        for spec in getattr(importlib.import_module(f"gpu.kernels.{module}"), "SPECS", [])
    ]
    specs.sort(key=lambda spec: spec.name)
    for spec in specs:
        spec.check()
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise ValueError(f"two kernels have one name: {names}")
    return specs
