"""Compares fla's Triton kernels with the generated functions, forward and backward: `fla_kernels.py FOLDER...`.

Each FOLDER is what `canonc export --to trainer` writes of an arch. No GPU is needed: the kernels run in Triton's interpreter,
in a copy of the package without `.to(tl.int64)` of Python's numbers, which the interpreter does not have; a stub stands for
the driver and takes the first configuration of each kernel. Prints a line of JSON for each function.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import sys
import tempfile
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"
# The folder `transformers` beside this file is no package.
del sys.path[0]

import torch
import triton

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: Tokens, heads, key and value channels: two chunks of 64.
TIME, HEADS, ROWS = 128, 2, 16


class Driver:
    """The parts of a driver that fla asks for."""

    utils = SimpleNamespace(get_device_properties=lambda index: {"multiprocessor_count": 1, "max_shared_mem": 1 << 20})

    def get_current_target(self):
        return SimpleNamespace(backend="cpu", arch="cpu", warp_size=32)

    def get_current_device(self):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_device_interface(self):
        return torch.cpu

    def get_benchmarker(self):
        return lambda call, quantiles=None, **options: [1.0, 1.0, 1.0]

    def is_active(self):
        return True


def copy_of_fla(place):
    """The installed package, so that the interpreter can run it."""
    source = pathlib.Path(importlib.util.find_spec("fla").origin).parent
    shutil.copytree(source, place / "fla")
    for file in (place / "fla").rglob("*.py"):
        text = file.read_text()
        file.write_text(text.replace(".to(tl.int64)", ""))
    sys.path.insert(0, str(place))
    triton.runtime.driver.set_active(Driver())


def operands(name):
    """Operands of a function, and named ones that are not tensors."""
    draw = lambda *shape: torch.randn(1, TIME, HEADS, *shape)
    q, k, v = draw(ROWS), torch.nn.functional.normalize(draw(ROWS), dim=-1), draw(ROWS)
    gates, gate = (torch.nn.functional.logsigmoid(draw(*shape)) for shape in ((ROWS,), ()))
    if name == "gla_scan":
        return [([q, k, v, gates], {}), ([q, k, v, gate], {})]
    if name == "delta_scan":
        return [([q, k, v, draw().sigmoid(), gate], {}), ([q, k, v, draw().sigmoid()], {"g": None})]
    groups = [torch.randn(1, TIME, 1, ROWS) for _ in range(2)]
    return [([v, draw().sigmoid(), -torch.rand(HEADS), *groups, torch.randn(HEADS)], {})]


def run(function, tensors, named):
    """Results and gradients of a weighted sum of them."""
    tensors = [x.clone().requires_grad_() for x in tensors]
    results = function(*tensors, **named)
    torch.manual_seed(1)
    sum((y.float() * torch.randn(y.shape)).sum() for y in results).backward()
    return [y.detach() for y in results], [x.grad for x in tensors]


def difference(ours, theirs):
    return max(((a - b).abs().max() / a.abs().max().clamp_min(1e-9)).item() for a, b in zip(ours, theirs, strict=True))


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        copy_of_fla(pathlib.Path(place))
        sys.path.insert(0, str(ROOT / "python"))
        from canonc.torch import Lock, _kernels, _model

        for folder in sys.argv[1:]:
            generated, other = (_model.code(Lock(folder)) for _ in range(2))
            names = [name for name in ("gla_scan", "delta_scan", "ssd_scan") if hasattr(generated, name)]
            ran = _kernels.use(other, dict.fromkeys(names, "fla"), torch.device("cpu"), "f32")
            for name in names:
                for number, (tensors, named) in enumerate(operands(name)):
                    torch.manual_seed(0)
                    ours, gradients = run(getattr(generated, name), tensors, named)
                    theirs, others = run(getattr(other, name), tensors, named)
                    line = {"name": f"{name} {number}", "kernel": ran[name]}
                    print(json.dumps(line | {"results": difference(ours, theirs), "gradients": difference(gradients, others)}), flush=True)


main()
