"""BLAKE3 (O'Connor et al. 2020), for the digests of canonc's files: of tensors where they are, and of short texts.

The package `blake3` is used where it is installed. Otherwise chunks of 1,024 bytes are hashed side by side by PyTorch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

_IV = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
_ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
_START, _END, _PARENT, _ROOT, _CONTEXT, _MATERIAL = 1, 2, 4, 8, 32, 64
_LOW = 0xFFFFFFFF
#: Chunks that are hashed at a time: 16 MiB.
_PIECE = 1 << 14

try:
    import blake3 as _package
except ImportError:
    _package = None


def _compress(chain: list[int], words: list[int], counter: int, length: int, flags: int) -> list[int]:
    """The compression function: 16 words, of which the first eight chain."""
    v = chain + _IV[:4] + [counter & _LOW, counter >> 32, length, flags]

    def mix(a: int, b: int, c: int, d: int, x: int, y: int) -> None:
        for word, (turn_d, turn_b) in ((x, (16, 12)), (y, (8, 7))):
            v[a] = v[a] + v[b] + word & _LOW
            v[d] ^= v[a]
            v[d] = (v[d] >> turn_d | v[d] << 32 - turn_d) & _LOW
            v[c] = v[c] + v[d] & _LOW
            v[b] ^= v[c]
            v[b] = (v[b] >> turn_b | v[b] << 32 - turn_b) & _LOW

    m = words
    for _ in range(7):
        for i in range(4):
            mix(i, 4 + i, 8 + i, 12 + i, m[2 * i], m[2 * i + 1])
        for i in range(4):
            mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[8 + 2 * i], m[9 + 2 * i])
        m = [m[i] for i in _ORDER]
    return [a ^ b for a, b in zip(v[:8], v[8:])] + [a ^ b for a, b in zip(v[8:], chain)]


def _chunk(data: bytes, key: list[int], counter: int, flags: int, root: int) -> list[int]:
    """The chaining value of a chunk of at most 1,024 bytes."""
    chain = key
    starts = range(0, len(data), 64) or [0]
    for start in starts:
        block = data[start : start + 64]
        padded = block + bytes(64 - len(block))
        words = [int.from_bytes(padded[i : i + 4], "little") for i in range(0, 64, 4)]
        last = _END | root if start + 64 >= len(data) else 0
        chain = _compress(chain, words, counter, len(block), flags | (_START if start == 0 else 0) | last)[:8]
    return chain


def _signed(words: list[int], device: torch.device) -> torch.Tensor:
    """Unsigned words as int32."""
    return torch.tensor([word - (1 << 32) if word >> 31 else word for word in words], dtype=torch.int32, device=device)


def _turn(x: torch.Tensor, by: int) -> torch.Tensor:
    return (x >> by & (1 << 32 - by) - 1) | x << 32 - by


def _compress_all(chain: torch.Tensor, words: torch.Tensor, counter: torch.Tensor, flags: int) -> torch.Tensor:
    """The chaining values [8, n] of n blocks of 64 bytes: chain [8, n], words [16, n], counter [n] in int64; else int32."""
    n = chain.shape[1]
    low = ((counter & _LOW) + (1 << 31) & _LOW) - (1 << 31)  # as int32
    rest = torch.stack([low.int(), (counter >> 32).int(), torch.full_like(low, 64).int(), torch.full_like(low, flags).int()])
    iv = _signed(_IV, chain.device)
    a, b, c, d = chain[:4], chain[4:], iv[:4, None].expand(4, n), rest
    m = words
    for _ in range(7):
        for first, diagonal in ((0, False), (8, True)):
            x, y = m[first : first + 8 : 2], m[first + 1 : first + 8 : 2]
            if diagonal:
                b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)
            for word, turn_d, turn_b in ((x, 16, 12), (y, 8, 7)):
                a = a + b + word
                d = _turn(d ^ a, turn_d)
                c = c + d
                b = _turn(b ^ c, turn_b)
            if diagonal:
                b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
        m = m[_ORDER]
    return torch.cat([a ^ c, b ^ d])


def _words(values: torch.Tensor) -> list[list[int]]:
    """Columns of int32 as lists of unsigned words."""
    return [[word & _LOW for word in column] for column in values.t().tolist()]


def _tree(data: torch.Tensor, key: list[int], flags: int) -> bytes:
    """The digest of bytes, a tensor of uint8."""
    full = max(data.numel() - 1, 0) // 1024
    start = _signed(key, data.device)[:, None]
    values: list[torch.Tensor] = []
    for first in range(0, full, _PIECE):
        n = min(_PIECE, full - first)
        piece = data[first * 1024 : (first + n) * 1024].view(torch.int32).view(n, 16, 16)
        counter = torch.arange(first, first + n, device=data.device)
        chain = start.expand(8, n)
        for block in range(16):
            extra = _START if block == 0 else _END if block == 15 else 0
            chain = _compress_all(chain, piece[:, block].t(), counter, flags | extra)
        values.append(chain)
    last = bytes(data[full * 1024 :].tolist())
    if not values:
        root = _chunk(last, key, 0, flags, _ROOT)
        return b"".join(word.to_bytes(4, "little") for word in root)
    end = _signed(_chunk(last, key, full, flags, 0), data.device)
    nodes = torch.cat([*values, end[:, None]], dim=1)
    while nodes.shape[1] > 2:
        pairs = nodes.shape[1] // 2
        words = torch.cat([nodes[:, : 2 * pairs : 2], nodes[:, 1 : 2 * pairs : 2]])
        zero = torch.zeros(pairs, dtype=torch.int64, device=data.device)
        parents = _compress_all(start.expand(8, pairs), words, zero, flags | _PARENT)
        nodes = torch.cat([parents, nodes[:, 2 * pairs :]], dim=1)
    left, right = _words(nodes)
    root = _compress(key, left + right, 0, 64, flags | _PARENT | _ROOT)[:8]
    return b"".join(word.to_bytes(4, "little") for word in root)


def _of_bytes(data: bytes, key: list[int], flags: int) -> bytes:
    if len(data) <= 1024:
        return b"".join(word.to_bytes(4, "little") for word in _chunk(data, key, 0, flags, _ROOT))
    return _tree(torch.frombuffer(bytearray(data), dtype=torch.uint8), key, flags)


def derived(context: str, data: bytes) -> bytes:
    """BLAKE3 in `derive_key` mode."""
    if _package is not None:
        return bytes(_package.blake3(data, derive_key_context=context).digest())
    key = _of_bytes(context.encode(), _IV, _CONTEXT)
    return _of_bytes(data, [int.from_bytes(key[i : i + 4], "little") for i in range(0, 32, 4)], _MATERIAL)


def tagged(tag: str, text: str) -> str:
    """`BLAKE3(tag + LF + text)` in hexadecimal digits, as in docs/files.md."""
    data = f"{tag}\n{text}".encode()
    if _package is not None:
        return str(_package.blake3(data).hexdigest())
    return _of_bytes(data, _IV, 0).hex()


def memory(tensor: torch.Tensor) -> Any:
    """The bytes of a contiguous tensor on the CPU, without a copy."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return b""
    view = (ctypes.c_ubyte * size).from_address(tensor.data_ptr())
    # An address alone keeps no tensor alive.
    view.owner = tensor
    return memoryview(view).cast("B")


def of_tensor(tensor: torch.Tensor) -> str:
    """The digest of a tensor's values in f32, as in `tensors` of a checkpoint."""
    tensor = tensor.detach().float().contiguous()
    tag = b"canonc.tensor.v1\n"
    if _package is not None:
        tensor = tensor.cpu()
        hasher = _package.blake3(tag)
        hasher.update(memory(tensor))
        return str(hasher.hexdigest())
    data = torch.cat([torch.tensor(list(tag), dtype=torch.uint8, device=tensor.device), tensor.view(-1).view(torch.uint8)])
    return _tree(data, _IV, 0).hex()


def of_file(path: Path) -> str:
    """The digest of a file."""
    if _package is not None:
        return str(_package.blake3().update_mmap(path).hexdigest())
    data = torch.from_file(str(path), size=path.stat().st_size, dtype=torch.uint8)
    return _tree(data, _IV, 0).hex()


def of_tensors(rows: Iterable[tuple[str, list[int], str]]) -> str:
    """The digest of tensors: path, shape and digest of each, in the manifest's order."""
    return tagged("canonc.tensors.v1", "".join(f"{path} f32 {shape} {digest}\n" for path, shape, digest in rows))
