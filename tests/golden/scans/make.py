"""Makes the files here: the scans that have CUDA kernels, with states for which those were compiled.

    python make.py            # writes *.safetensors beside this file, in a minute

Needs numpy; made with Python 3.11 and numpy 2.3. Every scan is computed token by token, one head after another, from the
equations of its paper; the gradients were derived by hand and are compared with finite differences before anything is
written. README.md says what a file has.
"""

import json
import struct
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
BATCH, TIME, HEADS = 1, 150, 2  # two chunks of 64 tokens and a part of one
STRIDE, WHOLE = 29, 4096  # every 29th element of a tensor of more than 4,096
MASK = (1 << 64) - 1


# Operands, which runtime/src/selftest/goldens.rs makes in the same way.


def drawn(seed: str, size: tuple[int, ...]) -> np.ndarray:
    """Multiples of 1/64 between -3 and 3, of mean 0 and deviation 1: exact in bf16."""
    state = 17
    for byte in seed.encode():
        state = (state * 131 + byte) & MASK
    values = np.empty(int(np.prod(size)))
    for i in range(values.size):
        total = 0
        for _ in range(3):
            state = (state * 6364136223846793005 + 1442695040888963407) & MASK
            total += (state >> 40 & 127) - 64
        values[i] = total / 64
    return values.reshape(size)


def bf16(x: np.ndarray) -> np.ndarray:
    """The nearest bf16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32).astype(np.float64)


def operand(seed: str, form: str, size: tuple[int, ...]) -> np.ndarray:
    x = drawn(seed, size)
    # The first head remembers more than a chunk, the second a few tokens.
    head = np.arange(HEADS).reshape((HEADS,) + (1,) * (len(size) - 3)) if len(size) > 2 else np.arange(HEADS)
    match form:
        case "normal":
            return x
        case "unit":  # keys of length 1
            return bf16(x / np.sqrt((x * x).sum(-1, keepdims=True)))
        case "share":  # between 1/8 and 7/8
            return (4 + x) / 8
        case "gate":  # logarithms of decays
            return bf16(-(x * x) * 2.0 ** (5 * head - 6))
        case "rate":  # as a gate, by head
            return -(2.0 ** (5.0 * head - 5))
    raise ValueError(form)


# One head: operands [time, …] or its part of a parameter; y [time, columns], the last state, and gradients of Σ y dy.


def gla(q, k, v, g):
    """Yang et al. 2023, eq. 3."""
    s = np.zeros((k.shape[1], v.shape[1]), v.dtype)
    y = np.empty_like(v)
    for t in range(TIME):
        s = np.exp(g[t])[:, None] * s + np.outer(k[t], v[t])
        y[t] = q.shape[1] ** -0.5 * (q[t] @ s)
    return y, s


def gla_gradients(dy, q, k, v, g):
    scale = q.shape[1] ** -0.5
    states = [np.zeros((k.shape[1], v.shape[1]), v.dtype)]
    for t in range(TIME):
        states.append(np.exp(g[t])[:, None] * states[-1] + np.outer(k[t], v[t]))
    dq, dk, dv, dg = (np.empty_like(x) for x in (q, k, v, g))
    ds = np.zeros_like(states[0])
    for t in reversed(range(TIME)):
        ds = ds + scale * np.outer(q[t], dy[t])
        dq[t] = scale * (states[t + 1] @ dy[t])
        dk[t] = ds @ v[t]
        dv[t] = k[t] @ ds
        ds = np.exp(g[t])[:, None] * ds
        dg[t] = (ds * states[t]).sum(1)
    return dq, dk, dv, dg


def delta(q, k, v, beta, g):
    """Yang et al. 2024 (Gated Delta Networks), eq. 10, transposed: S ← e^g (I − β k kᵀ) S + β k vᵀ."""
    s = np.zeros((k.shape[1], v.shape[1]), v.dtype)
    y = np.empty_like(v)
    for t in range(TIME):
        s = np.exp(g[t]) * (s - beta[t] * np.outer(k[t], k[t] @ s)) + beta[t] * np.outer(k[t], v[t])
        y[t] = q.shape[1] ** -0.5 * (q[t] @ s)
    return y, s


def delta_gradients(dy, q, k, v, beta, g):
    scale = q.shape[1] ** -0.5
    states = [np.zeros((k.shape[1], v.shape[1]), v.dtype)]
    for t in range(TIME):
        s = states[-1]
        s = np.exp(g[t]) * (s - beta[t] * np.outer(k[t], k[t] @ s)) + beta[t] * np.outer(k[t], v[t])
        states.append(s)
    dq, dk, dv, dbeta, dg = (np.empty_like(x) for x in (q, k, v, beta, g))
    ds = np.zeros_like(states[0])
    for t in reversed(range(TIME)):
        decay, before = np.exp(g[t]), states[t]
        ds = ds + scale * np.outer(q[t], dy[t])
        dq[t] = scale * (states[t + 1] @ dy[t])
        known = decay * (k[t] @ before)  # what the decayed state has under k
        pull = k[t] @ ds
        dv[t] = beta[t] * pull
        dbeta[t] = pull @ (v[t] - known)
        dk[t] = beta[t] * (ds @ (v[t] - known) - decay * (before @ pull))
        ds = decay * (ds - beta[t] * np.outer(k[t], pull))
        dg[t] = (ds * before).sum()
    return dq, dk, dv, dbeta, dg


def ssd(x, dt, a, b, c, d):
    """Dao and Gu 2024, eq. 1 with the discretisation and the skip of section 7."""
    s = np.zeros((x.shape[1], b.shape[1]), x.dtype)
    y = np.empty_like(x)
    for t in range(TIME):
        s = np.exp(dt[t] * a) * s + dt[t] * np.outer(x[t], b[t])
        y[t] = s @ c[t] + d * x[t]
    return y, s


def ssd_gradients(dy, x, dt, a, b, c, d):
    states = [np.zeros((x.shape[1], b.shape[1]), x.dtype)]
    for t in range(TIME):
        states.append(np.exp(dt[t] * a) * states[-1] + dt[t] * np.outer(x[t], b[t]))
    dx, ddt, db, dc = (np.empty_like(value) for value in (x, dt, b, c))
    da = dd = x.dtype.type(0)
    ds = np.zeros_like(states[0])
    for t in reversed(range(TIME)):
        ds = ds + np.outer(dy[t], c[t])
        dc[t] = dy[t] @ states[t + 1]
        dx[t] = dt[t] * (ds @ b[t]) + d * dy[t]
        db[t] = dt[t] * (x[t] @ ds)
        dd = dd + dy[t] @ x[t]
        written = x[t] @ ds @ b[t]
        ds = np.exp(dt[t] * a) * ds
        kept = (ds * states[t]).sum()
        ddt[t] = written + a * kept
        da = da + dt[t] * kept
    return dx, ddt, da, db, dc, dd


def rwkv6(r, k, v, g, u):
    """Peng et al. 2024, section 4: the state is read before it is written."""
    s = np.zeros((k.shape[1], v.shape[1]), v.dtype)
    y = np.empty_like(v)
    for t in range(TIME):
        written = np.outer(k[t], v[t])
        y[t] = r[t] @ (s + u[:, None] * written)
        s = np.exp(g[t])[:, None] * s + written
    return y, s


def rwkv6_gradients(dy, r, k, v, g, u):
    states = [np.zeros((k.shape[1], v.shape[1]), v.dtype)]
    for t in range(TIME):
        states.append(np.exp(g[t])[:, None] * states[-1] + np.outer(k[t], v[t]))
    dr, dk, dv, dg = (np.empty_like(x) for x in (r, k, v, g))
    du = np.zeros_like(u)
    ds = np.zeros_like(states[0])
    for t in reversed(range(TIME)):
        seen = v[t] @ dy[t]
        dr[t] = states[t] @ dy[t] + seen * u * k[t]
        dk[t] = ds @ v[t] + seen * u * r[t]
        dv[t] = k[t] @ ds + (r[t] * u * k[t]).sum() * dy[t]
        du += seen * r[t] * k[t]
        ds = np.exp(g[t])[:, None] * ds
        dg[t] = (ds * states[t]).sum(1)
        ds = ds + np.outer(r[t], dy[t])
    return dr, dk, dv, dg, du


# Each operand's form, dtype under bf16 and axes: T tokens, H heads, G groups (one for both heads), K keys, V values, and
# P and N, the axes of SSD's state.
SCANS = {
    "gla_scan": (gla, gla_gradients, "K V", {
        "q": "normal bf16 T H K", "k": "normal bf16 T H K", "v": "normal bf16 T H V", "g": "gate bf16 T H K",
    }),
    "delta_scan": (delta, delta_gradients, "K V", {
        "q": "unit bf16 T H K", "k": "unit bf16 T H K", "v": "normal bf16 T H V", "beta": "share f32 T H",
        "g": "gate f32 T H",
    }),
    "ssd_scan": (ssd, ssd_gradients, "P N", {
        "x": "normal bf16 T H P", "dt": "share f32 T H", "a": "rate f32 H", "b": "normal bf16 T G N",
        "c": "normal bf16 T G N", "d": "normal f32 H",
    }),
    "rwkv6_scan": (rwkv6, rwkv6_gradients, "K V", {
        "r": "normal bf16 T H K", "k": "normal bf16 T H K", "v": "normal bf16 T H V", "g": "gate bf16 T H K",
        "u": "normal f32 H K",
    }),
}  # fmt: skip
RESULT = {"gla_scan": "v", "delta_scan": "v", "ssd_scan": "x", "rwkv6_scan": "v"}  # y is as wide
STATES = [
    ("gla_scan", 64, 64), ("gla_scan", 128, 256),
    ("delta_scan", 64, 64), ("delta_scan", 128, 256),
    ("ssd_scan", 64, 64), ("ssd_scan", 256, 128),
    ("rwkv6_scan", 64, 64), ("rwkv6_scan", 64, 128),
]  # fmt: skip


def by_head(x: np.ndarray, axes: str, head: int) -> np.ndarray:
    """A head's part; that of its group, if there is one group."""
    names = axes.split()
    if "G" in names:
        return x[0, :, 0]
    return x[0, :, head] if "T" in names else x[head]


def whole(parts: list[np.ndarray], axes: str) -> np.ndarray:
    """The tensor of all heads."""
    names = axes.split()
    if "G" in names:
        return sum(parts[1:], parts[0])[None, :, None]
    return np.stack(parts, 1)[None] if "T" in names else np.stack(parts)


def forward(scan: str, x: dict) -> tuple[np.ndarray, np.ndarray]:
    step, _, _, forms = SCANS[scan]
    axes = {name: form.split(maxsplit=2)[2] for name, form in forms.items()}
    heads = [step(*(by_head(x[name], axes[name], h) for name in x)) for h in range(HEADS)]
    return np.stack([y for y, _ in heads], 1)[None], np.stack([s for _, s in heads])[None]


def results(scan: str, x: dict, dy: np.ndarray) -> dict:
    _, back, _, forms = SCANS[scan]
    axes = {name: form.split(maxsplit=2)[2] for name, form in forms.items()}
    y, state = forward(scan, x)
    heads = [back(dy[0, :, h], *(by_head(x[name], axes[name], h) for name in x)) for h in range(HEADS)]
    gradients = {f"grad/{name}": whole(list(parts), axes[name]) for name, parts in zip(x, zip(*heads))}
    return {"out/y": y, "state/S": state, **gradients}


def check(scan: str, x: dict, dy: np.ndarray, found: dict) -> float:
    """The gradients along random directions against differences of four points; the largest error."""
    rng, worst, step = np.random.default_rng(1), 0.0, 3e-5
    for name, value in x.items():
        direction = rng.standard_normal(value.shape)
        loss = {n: (forward(scan, {**x, name: value + n * step * direction})[0] * dy).sum() for n in (-2, -1, 1, 2)}
        want = (8 * (loss[1] - loss[-1]) - (loss[2] - loss[-2])) / (12 * step)
        gradient = found[f"grad/{name}"]
        # By its norm, the deviation of what a random direction gives.
        off = abs((gradient * direction).sum() - want) / np.linalg.norm(gradient)
        assert off < 1e-7, f"{scan}, {name}: off by {off:.1e} from differences"
        worst = max(worst, off)
    return worst


def deviation(got: dict, want: dict) -> float:
    return max(np.abs(got[name] - x).max() / np.abs(x).max() for name, x in want.items())


def save(path: Path, tensors: dict, metadata: dict) -> None:
    header, data = {"__metadata__": metadata}, b""
    for name, x in tensors.items():
        raw = x.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, sort_keys=True, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make(scan: str, rows: int, columns: int) -> None:
    step, _, state, forms = SCANS[scan]
    name = f"{scan} {rows}x{columns}"
    sizes = {"T": (BATCH, TIME), "H": (HEADS,), "G": (1,), **dict(zip(state.split(), [(rows,), (columns,)]))}
    forms = {f"in/{key}": form for key, form in forms.items()}
    forms["cot/y"] = f"normal {forms['in/' + RESULT[scan]].split(maxsplit=1)[1]}"
    made, described = {}, {}
    for key, form in forms.items():
        form, dtype, *axes = form.split()
        size = sum((sizes[axis] for axis in axes), ())
        made[key] = operand(f"{name}/{key}", form, size)
        assert dtype == "f32" or (made[key] == bf16(made[key])).all(), f"{name}: {key} is not exact in bf16"
        assert (made[key] == made[key].astype(np.float32)).all(), f"{name}: {key} is not exact in f32"
        described[key] = " ".join([form, dtype, *map(str, size)])
    dy = made.pop("cot/y")
    x = {key.removeprefix("in/"): value for key, value in made.items()}
    found = results(scan, x, dy)
    differences = check(scan, x, dy, found)
    single = results(scan, {key: value.astype(np.float32) for key, value in x.items()}, dy.astype(np.float32))
    f32 = deviation(single, found)
    assert f32 < 2e-6, f"{name}: a sum of the gradients cancels ({f32:.1e} in f32): take other numbers"
    rounded = deviation({key: bf16(value) for key, value in found.items()}, found)
    sample = {key: x.ravel()[:: STRIDE if x.size > WHOLE else 1] for key, x in found.items()}
    metadata = {
        **described,
        "scan": scan,
        "state": f"{rows}x{columns}",
        "stride": str(STRIDE),
        "whole": str(WHOLE),
        "tolerance": f"{30 * f32:.1e}",
        "tolerance_bf16": f"{10 * rounded:.1e}",
        "source": step.__doc__,
        "licence": "that of this repository",
    }
    save(HERE / f"{scan}_{rows}x{columns}.safetensors", sample, metadata)
    largest = ", ".join(f"{key} {np.abs(x).max():.2g}" for key, x in found.items())
    print(f"{name}: differences {differences:.0e}, f32 {f32:.1e}, bf16 {rounded:.1e}; {largest}", flush=True)


if __name__ == "__main__":
    for case in STATES:
        make(*case)
