"""Rotary positions (plan kernel Rope)."""

import triton
import triton.language as tl

from gpu.registry import Spec, with_dtypes


@triton.jit
def rope(
    x, cosine, sine, y, rows, heads, width, dims, time, x_row, sign,
    HALF: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """y [tokens, heads, width]: of each head the first `dims` channels turned, the rest copied.

    y[j] = x[j] cosine[t, j] + x[partner of j] sign · sine[t, j], t = token % time; cosine and sine [time, dims] f32 are
    the tables of runtime/src/kernels/rope.rs, where sine is negative in the first of a pair; sign −1 turns back. Pairs
    are 2i and 2i + 1, or with HALF i and i + dims/2. Row r is head r % heads of token r / heads, and begins at
    token · x_row + head · width. BD is at least width; rows are tokens · heads.
    """
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    token = r // heads
    start = (token.to(tl.int64) * x_row + (r % heads) * width)[:, None]
    out = (r.to(tl.int64) * width)[:, None]
    table = (token % time).to(tl.int64)[:, None] * dims
    inside = (r < rows)[:, None]
    if HALF:
        pairs = dims // 2
        i = tl.arange(0, BD // 2)[None, :]
        mask = inside & (i < pairs)
        a = tl.load(x + start + i, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(x + start + pairs + i, mask=mask, other=0.0).to(tl.float32)
        cosine_a = tl.load(cosine + table + i, mask=mask, other=0.0)
        sine_a = sign * tl.load(sine + table + i, mask=mask, other=0.0)
        cosine_b = tl.load(cosine + table + pairs + i, mask=mask, other=0.0)
        sine_b = sign * tl.load(sine + table + pairs + i, mask=mask, other=0.0)
        tl.store(y + out + i, tl.fma(a, cosine_a, b * sine_a).to(y.dtype.element_ty), mask=mask)
        tl.store(y + out + pairs + i, tl.fma(b, cosine_b, a * sine_b).to(y.dtype.element_ty), mask=mask)
        for first in range(dims, width, BD // 2):
            mask = inside & (first + i < width)
            rest = tl.load(x + start + first + i, mask=mask)
            tl.store(y + out + first + i, rest, mask=mask)
    else:
        j = tl.arange(0, BD)[None, :]
        mask, turned = inside & (j < width), inside & (j < dims)
        plain = tl.load(x + start + j, mask=mask, other=0.0).to(tl.float32)
        a, b = tl.split(tl.reshape(plain, [BR, BD // 2, 2]))
        cosine_a, cosine_b = tl.split(
            tl.reshape(tl.load(cosine + table + j, mask=turned, other=1.0), [BR, BD // 2, 2])
        )
        sine_a, sine_b = tl.split(
            tl.reshape(sign * tl.load(sine + table + j, mask=turned, other=0.0), [BR, BD // 2, 2])
        )
        made = tl.join(tl.fma(a, cosine_a, b * sine_a), tl.fma(b, cosine_b, a * sine_b))
        made = tl.where(turned, tl.reshape(made, [BR, BD]), plain)
        tl.store(y + out + j, made.to(y.dtype.element_ty), mask=mask)


SPECS = [
    Spec(
        fn=rope,
        params={
            "x": "*T", "cosine": "*f32", "sine": "*f32", "y": "*T", "rows": "i32", "heads": "i32", "width": "i32",
            "dims": "i32", "time": "i32", "x_row": "i64", "sign": "f32",
        },
        variants=with_dtypes(*(
            {"HALF": half, "BR": 2048 // width, "BD": width} for half in (0, 1) for width in (64, 128, 256)
        )),
        grid="cdiv(rows, BR)",
        divisible=("width", "dims", "x_row"),
    ),
]  # fmt: skip
