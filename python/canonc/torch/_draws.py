"""canonc's random numbers: initial values and keys of dropout, as functions of a key and a number alone.

Philox4x32-10 (Salmon et al. 2011) in int64, which wraps as uint64 does; distributions in f64, rounded once to f32
(records/src/init.rs of canonc has the same). Any range of elements can be drawn on any device that has f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from . import _hash

_LOW = 0xFFFFFFFF
#: Elements that are drawn at a time.
_PIECE = 1 << 20

# Wichura 1988, "Algorithm AS 241", PPND16: the highest power first.
_CENTRE = (
    (2509.0809287301227, 33430.57558358813, 67265.7709270087, 45921.95393154987)
    + (13731.69376550946, 1971.5909503065513, 133.14166789178438, 3.3871328727963665),
    (5226.495278852854, 28729.085735721943, 39307.89580009271, 21213.794301586597)
    + (5394.196021424751, 687.1870074920579, 42.31333070160091, 1.0),
)
_MIDDLE = (
    (0.0007745450142783414, 0.022723844989269184, 0.2417807251774506, 1.2704582524523684)
    + (3.6478483247632045, 5.769497221460691, 4.630337846156546, 1.4234371107496835),
    (1.0507500716444169e-09, 0.0005475938084995345, 0.015198666563616457, 0.14810397642748008)
    + (0.6897673349851, 1.6763848301838038, 2.053191626637759, 1.0),
)
_TAIL = (
    (2.0103343992922881e-07, 2.7115555687434876e-05, 0.0012426609473880784, 0.026532189526576124)
    + (0.29656057182850487, 1.7848265399172913, 5.463784911164114, 6.657904643501103),
    (2.0442631033899397e-15, 1.421511758316446e-07, 1.8463183175100548e-05, 0.0007868691311456133)
    + (0.014875361290850615, 0.1369298809227358, 0.599832206555888, 1.0),
)


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], r: torch.Tensor) -> torch.Tensor:
    over, under = torch.zeros_like(r), torch.zeros_like(r)
    for a, b in zip(*coefficients):
        over, under = over * r + a, under * r + b
    return over / under


def _quantile(p: torch.Tensor) -> torch.Tensor:
    """The standard normal's quantile."""
    q = p - 0.5
    centre = q.abs() <= 0.425
    near = torch.where(centre, 0.180625 - q * q, 0.0)
    # In the centre the tail's formula has no use, and must not be far off.
    r = (-torch.where(centre, 0.1, torch.where(q < 0, p, 1 - p)).log()).sqrt()
    size = torch.where(r <= 5.0, _ratio(_MIDDLE, r - 1.6), _ratio(_TAIL, r - 5.0))
    return torch.where(centre, q * _ratio(_CENTRE, near), torch.where(q < 0, -size, size))


def _uniforms(key: bytes, first: int, count: int, device: torch.device) -> torch.Tensor:
    """Draws of elements `first` to `first + count`: multiples of 2^-52 plus 2^-53."""
    k0, k1, upper0, upper1 = (int.from_bytes(key[i : i + 4], "little") for i in range(0, 16, 4))
    block = torch.arange(first // 2, (first + count + 1) // 2, device=device)
    x = [block & _LOW, block >> 32 & _LOW, torch.full_like(block, upper0), torch.full_like(block, upper1)]
    for _ in range(10):
        left, right = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
        x = [(right >> 32 & _LOW) ^ x[1] ^ k0, right & _LOW, (left >> 32 & _LOW) ^ x[3] ^ k1, left & _LOW]
        k0, k1 = k0 + 0x9E3779B9 & _LOW, k1 + 0xBB67AE85 & _LOW
    bits = torch.stack([x[0] >> 12 | x[1] << 20, x[2] >> 12 | x[3] << 20], dim=-1).flatten()
    return (bits[first % 2 : first % 2 + count].double() + 0.5) * 2.0**-52


def _distribution(rule: str, numbers: list[float]) -> Callable[[torch.Tensor], torch.Tensor]:
    """From uniform draws to values, in f64."""
    if rule == "normal":
        (std,) = numbers
        return lambda u: _quantile(u) * std
    if rule == "trunc_normal":
        std, bound = numbers
        below = 0.5 * math.erfc(bound * math.sqrt(0.5))
        within, limit = 1.0 - 2.0 * below, bound * std
        return lambda u: (_quantile(below + u * within) * std).clamp(-limit, limit)
    if rule == "uniform":
        (limit,) = numbers
        return lambda u: -limit + (limit + limit) * u
    if rule == "log_uniform":
        lo, hi = numbers
        return lambda u: (lo + (hi - lo) * u).log()
    if rule == "time_step":
        lo, hi, floor = math.log(numbers[0]), math.log(numbers[1]), numbers[2]

        def inverse(u: torch.Tensor) -> torch.Tensor:
            step = (lo + (hi - lo) * u).exp().clamp(min=floor)
            return step + (-torch.expm1(-step)).log()

        return inverse
    raise ValueError(f"the initial distribution {rule!r} is not known here: this folder is of a newer canonc")


def initial(rule: str, numbers: list[float], seed: int, path: str, first: int, out: torch.Tensor) -> None:
    """Writes elements `first…` of the parameter with this path into `out`, f32 and contiguous."""
    flat = out.view(-1)
    if rule == "constant":
        flat.fill_(numbers[0])
        return
    key = _hash.derived("canonc 1 init", seed.to_bytes(8, "little") + path.encode())
    value = _distribution(rule, numbers)
    for start in range(0, flat.numel(), _PIECE):
        piece = flat[start : start + _PIECE]
        piece.copy_(value(_uniforms(key, first + start, piece.numel(), out.device)))


def dropout_keys(key: int, calls: list[str]) -> torch.Tensor:
    """The keys of calls that drop elements, [calls, 2] in int64."""
    words = [_hash.derived("canonc 1 dropout", key.to_bytes(8, "little") + call.encode()) for call in calls]
    pairs = [[int.from_bytes(word[:4], "little"), int.from_bytes(word[4:8], "little")] for word in words]
    return torch.tensor(pairs, dtype=torch.int64).view(-1, 2)
