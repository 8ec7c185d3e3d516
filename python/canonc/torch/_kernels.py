"""The functions that compute a module's primitives, by name: generated code, or kernels of other packages behind it.

Every one has the generated function's arguments and results. Which one runs is recorded. None changes the precision
that a lock asks for: `fla` computes f32 products in TF32 on GPUs, so "auto" uses it for bf16 alone.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from ._lock import Error

Function = Callable[..., Any]


def _gla(text: ModuleType) -> Function:
    """fla's chunked gated linear attention, and its simple form where a head has one gate."""
    from fla.ops.gla import chunk_gla
    from fla.ops.simple_gla import chunk_simple_gla

    def gla_scan(q: Any, k: Any, v: Any, g: Any, scale: Any = None, past: Any = None) -> Any:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        q, k, v = _alike(q, k, v)
        if g.dim() < q.dim():
            g = g.float().expand(q.shape[:-1]).contiguous()
            return chunk_simple_gla(q, k, v, g=g, scale=scale, initial_state=past, output_final_state=True)
        return chunk_gla(q, k, v, g=g.float(), scale=scale, initial_state=past, output_final_state=True)

    return gla_scan


def _delta(text: ModuleType) -> Function:
    """fla's chunked gated delta rule, and its form for several steps a token."""
    from fla.ops.gated_delta_product import chunk_gated_delta_product
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    def delta_scan(q: Any, k: Any, v: Any, beta: Any, g: Any = None, scale: Any = None, steps: int = 1, past: Any = None) -> Any:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        q, k, v = _alike(q, k, v)
        g = q.new_zeros(q.shape[:-1], dtype=torch.float32) if g is None else g.float()
        options = {"scale": scale, "initial_state": past, "output_final_state": True}
        if steps == 1:
            return chunk_gated_delta_rule(q, k, v, g, beta.float(), **options)
        k, v, beta = (x.unflatten(2, (steps, -1)).flatten(1, 2) for x in (k, v, beta.float()))
        return chunk_gated_delta_product(q, k, v, g, beta, num_householder=steps, **options)

    return delta_scan


def _ssd(text: ModuleType) -> Function:
    """Mamba2's scan as fla's simple gated linear attention."""
    from fla.ops.simple_gla import chunk_simple_gla

    def ssd_scan(x: Any, dt: Any, a: Any, b: Any, c: Any, d: Any, past: Any = None) -> Any:
        groups, dt = x.shape[2] // b.shape[2], dt.float()
        b, c = b.repeat_interleave(groups, dim=2), c.repeat_interleave(groups, dim=2)
        written = (dt.unsqueeze(-1) * x).to(x.dtype)
        b, c, written = _alike(b, c, written)
        state = None if past is None else past.transpose(-1, -2).contiguous()
        y, state = chunk_simple_gla(c, b, written, g=dt * a.float(), scale=1.0, initial_state=state, output_final_state=True)
        y = (y.float() + d.float()[:, None] * x.float()).to(x.dtype)
        return y, state.transpose(-1, -2)

    return ssd_scan


def _mamba_ssm(text: ModuleType) -> Function:
    """Mamba2's own kernel."""
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    def ssd_scan(x: Any, dt: Any, a: Any, b: Any, c: Any, d: Any, past: Any = None) -> Any:
        x, b, c = _alike(x, b, c)
        options = {"D": d.float(), "initial_states": past, "return_final_states": True}
        return mamba_chunk_scan_combined(x, dt.float(), a.float(), b, c, chunk_size=256, **options)

    return ssd_scan


def _convolution(text: ModuleType) -> Function:
    """Tri Dao's depthwise convolution, for filters of 2 to 4 taps."""
    from causal_conv1d import causal_conv1d_fn

    generated = text.causal_conv

    def causal_conv(x: Any, weight: Any, kernel: int, past: Any) -> Any:
        if past is not None or not 2 <= kernel <= 4:
            return generated(x, weight, kernel, past)
        return causal_conv1d_fn(x.transpose(1, 2), weight.to(x.dtype)).transpose(1, 2), None

    return causal_conv


def _shifted(text: ModuleType) -> Function:
    """The convolution as sums of shifted copies, which `torch.compile` fuses."""

    def causal_conv(x: Any, weight: Any, kernel: int, past: Any) -> Any:
        if past is None:
            past = x.new_zeros(x.shape[0], kernel - 1, x.shape[2])
        x, time = torch.cat([past.to(x.dtype), x], dim=1), x.shape[1]
        y = sum(x[:, j : j + time] * weight[:, j].to(x.dtype) for j in range(kernel))
        return y, x[:, time:]

    return causal_conv


def _flex(text: ModuleType) -> Function:
    """PyTorch's flex_attention, for windows, caps of scores and slopes. A sink stays with the generated code."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    generated, compiled = text.attention, torch.compile(flex_attention, dynamic=False)
    masks: dict[Any, Any] = {}

    def attention(q: Any, k: Any, v: Any, *extra: Any, window: Any = None, scale: Any = None, softcap: Any = None, sink: bool = False, slopes: bool = False, past: Any = None) -> Any:
        plain = window is None and softcap is None and not extra
        if plain or sink or past is not None:
            options = {"window": window, "scale": scale, "softcap": softcap, "sink": sink, "slopes": slopes, "past": past}
            return generated(q, k, v, *extra, **options)
        kept, (q, k, v) = (k, v), _alike(q, k, v)
        time, slope = q.shape[1], extra[0].float() if slopes else None
        if (time, window, q.device) not in masks:
            reach = time if window is None else window

            def visible(b: Any, h: Any, i: Any, j: Any) -> Any:
                return (i >= j) & (i - j < reach)

            masks[time, window, q.device] = create_block_mask(visible, None, None, time, time, device=q.device)

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            s = s if softcap is None else softcap * torch.tanh(s / softcap)
            return s if slope is None else s - slope[h] * (i - j)

        run = compiled if q.is_cuda else flex_attention
        y = run(
            *(x.transpose(1, 2) for x in (q, k, v)),
            score_mod=score,
            block_mask=masks[time, window, q.device],
            scale=scale,
            enable_gqa=q.shape[2] != k.shape[2],
        )
        return y.transpose(1, 2), kept

    return attention


def _alike(*tensors: Any) -> tuple[Any, ...]:
    """Tensors in the widest of their dtypes."""
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = torch.promote_types(dtype, x.dtype)
    return tuple(x.to(dtype) for x in tensors)


#: For each function of the generated code: name, package that it needs, and what makes it.
KERNELS: dict[str, list[tuple[str, str, Callable[[ModuleType], Function]]]] = {
    "gla_scan": [("fla", "fla", _gla)],
    "delta_scan": [("fla", "fla", _delta)],
    "ssd_scan": [("mamba_ssm", "mamba_ssm", _mamba_ssm), ("fla", "fla", _ssd)],
    "causal_conv": [("causal_conv1d", "causal_conv1d", _convolution), ("shifted", "torch", _shifted)],
    "attention": [("flex", "torch", _flex)],
}

#: What to install for packages whose distribution has another name; the operations of fla are one of its own.
_DISTRIBUTIONS = {"fla": "fla-core", "mamba_ssm": "mamba-ssm", "causal_conv1d": "causal-conv1d"}


def version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        return None


def use(text: ModuleType, kernels: str | dict[str, str], device: torch.device, precision: str) -> dict[str, str]:
    """Puts kernels behind the functions of the generated code; returns what computes each of these."""
    present = [name for name in KERNELS if inspect.isfunction(getattr(text, name, None))]
    chosen = dict.fromkeys(present, "generated")
    if isinstance(kernels, dict):
        unknown = [name for name in kernels if name not in present]
        if unknown:
            raise Error(f"kernels: this module has no function {unknown[0]!r}; it has {', '.join(present) or 'none to choose'}")
        chosen |= kernels
    elif kernels == "auto":
        chosen |= {name: best for name in present if (best := _best(name, device, precision))}
    elif kernels != "generated":
        raise Error(f"kernels are 'generated', 'auto' or a dictionary, and not {kernels!r}")
    return {name: _put(text, name, kernel) for name, kernel in chosen.items()}


#: Kernels that compute some calls of a function and leave others to the generated code: the calls, and those of them.
_SOME = {
    "flex": (r" attention\(.*\bwindow=.*", r"^(?!.*\bsink=True).*\b(window=\d|softcap=\d|slopes=True)"),
    "causal_conv1d": (r".*\bkernel=\d.*", r"\bkernel=[234]\b"),
}


def _put(text: ModuleType, name: str, kernel: str) -> str:
    """Puts a kernel behind a function; returns what computes it."""
    generated = "sdpa" if name == "attention" else "generated"
    if kernel == "generated":
        return generated
    rows = {row[0]: row for row in KERNELS[name]}
    if kernel not in rows:
        raise Error(f"kernels: {name} is computed by {', '.join(['generated', *rows])}, and not by {kernel!r}")
    _, package, make = rows[kernel]
    try:
        setattr(text, name, make(text))
    except ImportError as error:
        raise Error(f"kernels: {name} by {kernel} needs the package {_DISTRIBUTIONS.get(package, package)}: {error}") from error
    words = kernel if package == "torch" else f"{kernel} {version(package) or 'of unknown version'}"
    calls, computed = _SOME.get(kernel, ("", ""))
    computes = {bool(re.search(computed, call)) for call in re.findall(calls, inspect.getsource(text))}
    if False not in computes:
        return words
    return f"{words} and {generated}" if True in computes else generated


def _best(name: str, device: torch.device, precision: str) -> str | None:
    """The fastest kernel that computes in the lock's precision here."""
    if device.type != "cuda":
        return None
    for kernel, package, _ in KERNELS[name]:
        if package == "torch":
            if kernel == "flex":
                return kernel
            continue
        if precision == "bf16" and importlib.util.find_spec(package) is not None:
            return kernel
    return None
