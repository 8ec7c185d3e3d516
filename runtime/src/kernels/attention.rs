//! Causal softmax attention: our kernels on the CPU, libtorch's flash kernel on a GPU (both after Dao et al. 2022), or the
//! plain formula.
//! In: q [b, t, h, d], k [b, s, kv, d], v [b, s, kv, e], s ≥ t: queries are the last t of s positions. Out: y [b, t, h,
//! e] and lse [b, h, t]; or dq, dk, dv. Query i sees keys j with 0 ≤ (s − t + i) − j, and < window.
//! Must stay true: the caller runs the path that `choose` returned; softmax is in f32 (f64 in f64); query head j reads
//! head ⌊j·kv/h⌋.

mod few;
mod fused;

use std::fmt;

use tch::{Device, Kind, Tensor};

use super::arrange::{cast, repeat_heads, sum_repeats};
use super::{Isa, KernelError, ffi};

/// The implementation of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Ours, for any window and widths.
    Fused(Isa),
    /// libtorch's flash kernel on a GPU, for bf16; its backward pass divides by multiprocessors, in a fixed order.
    Flash,
    /// Matrix products and a softmax, on any device and dtype; holds all scores.
    Reference(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Device(Device),
    /// The flash kernel does not support these widths of keys and values.
    Widths,
    Kind(Kind),
    /// The flash kernel supports heads of up to 256 channels, a multiple of 8.
    Width(i64),
    Asked,
}

/// The path on a device. `even`: keys as wide as values, `width`; `kind`: of the operands.
pub fn choose(even: bool, width: i64, device: Device, kind: Kind) -> Path {
    if let Device::Cuda(_) = device {
        match (even, kind) {
            (false, _) => Path::Reference(Reason::Widths),
            (true, Kind::BFloat16) if width % 8 == 0 && (8..=256).contains(&width) => Path::Flash,
            (true, Kind::BFloat16) => Path::Reference(Reason::Width(width)),
            (true, other) => Path::Reference(Reason::Kind(other)),
        }
    } else if device != Device::Cpu {
        Path::Reference(Reason::Device(device))
    } else if kind != Kind::Float {
        Path::Reference(Reason::Kind(kind))
    } else {
        Path::Fused(Isa::of_process())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fused(isa) => write!(f, "fused/{isa}"),
            Self::Flash => f.write_str("libtorch flash"),
            Self::Reference(Reason::Width(width)) => {
                write!(f, "reference (no flash attention for heads of {width})")
            }
            Self::Reference(Reason::Device(device)) => write!(f, "reference (on {device:?})"),
            Self::Reference(Reason::Widths) => {
                f.write_str("reference (value width is not key width)")
            }
            Self::Reference(Reason::Kind(kind)) => write!(f, "reference ({kind:?})"),
            Self::Reference(Reason::Asked) => f.write_str("reference (asked for)"),
        }
    }
}

/// The operands of attention.
#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub window: Option<i64>,
}

/// y [b, t, h, e] and lse [b, h, t].
pub fn forward(path: Path, operands: Operands<'_>) -> Result<(Tensor, Tensor), KernelError> {
    let shape = Shape::from_operands(operands)?;
    match path {
        Path::Fused(isa) if shape.queries <= few::QUERIES => {
            return few::forward(isa, &shape, operands);
        }
        Path::Fused(isa) => {
            let [q, k, v] = [operands.q, operands.k, operands.v].map(|x| cast(x, Kind::Float));
            let operands = Operands { q: &q?, k: &k?, v: &v?, ..operands };
            return fused::forward(isa, &shape, operands);
        }
        Path::Flash => {
            let Operands { q, k, v, window } = operands;
            let [q, k, v] = [q, k, v].map(last_dense);
            return ffi::flash_forward([&q?, &k?, &v?], shape.scale(), window);
        }
        Path::Reference(_) => {}
    }
    let (q, k, v) = shape.by_head(operands)?; // [b, h, t | s, d]
    let scores = shape.scores(operands, &q, &k)?; // [b, h, t, s]
    let lse = scores.f_logsumexp([-1i64].as_slice(), true)?; // [b, h, t, 1]
    let y = scores.f_sub(&lse)?.f_exp()?.f_matmul(&v)?;
    Ok((y.f_transpose(1, 2)?.f_contiguous()?, lse.f_squeeze_dim(-1)?))
}

/// (dq, dk, dv) of sum(y ⊙ dy), from y and lse of the forward pass.
pub fn backward(
    path: Path,
    dy: &Tensor,
    operands: Operands<'_>,
    y: &Tensor,
    lse: &Tensor,
) -> Result<(Tensor, Tensor, Tensor), KernelError> {
    let shape = Shape::from_operands(operands)?;
    match path {
        Path::Fused(isa) => {
            let [dy, q, k, v, y] =
                [dy, operands.q, operands.k, operands.v, y].map(|x| cast(x, Kind::Float));
            let operands = Operands { q: &q?, k: &k?, v: &v?, ..operands };
            return fused::backward(isa, &shape, &dy?, operands, &y?, lse);
        }
        Path::Flash => {
            let Operands { q, k, v, window } = operands;
            let [dy, q, k, v, y] = [dy, q, k, v, y].map(last_dense);
            let (of, made) = ([&q?, &k?, &v?], [&y?, lse]);
            return ffi::flash_backward(&dy?, of, made, shape.scale(), window);
        }
        Path::Reference(_) => {}
    }
    let (q, k, v) = shape.by_head(operands)?;
    let (dy, y) = (dy.f_transpose(1, 2)?, y.f_transpose(1, 2)?); // [b, h, t, e]
    let scale = shape.scale();
    let p = shape.scores(operands, &q, &k)?.f_sub(&lse.f_unsqueeze(-1)?)?.f_exp()?;
    let dp = dy.f_matmul(&v.f_transpose(-2, -1)?)?; // [b, h, t, s]
    let along = dy.f_mul(&y)?.f_sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>)?;
    let ds = dp.f_sub(&along)?.f_mul(&p)?.f_mul_scalar(scale)?;
    let (dq, dk, dv) = (
        ds.f_matmul(&k)?,
        ds.f_transpose(-2, -1)?.f_matmul(&q)?,
        p.f_transpose(-2, -1)?.f_matmul(&dy)?,
    );
    let rows = |x: Tensor| -> Result<Tensor, KernelError> {
        Ok(x.f_transpose(1, 2)?.f_contiguous()?) // [b, t | s, h, d]
    };
    let kv = |x: Tensor| match shape.times {
        1 => rows(x),
        times => sum_repeats(&x.f_transpose(1, 2)?, times),
    };
    Ok((rows(dq)?, kv(dk)?, kv(dv)?))
}

/// x with dense channels, as the flash kernel wants them.
fn last_dense(x: &Tensor) -> Result<Tensor, KernelError> {
    let dense = x.stride().last().is_none_or(|stride| *stride == 1);
    Ok(if dense { x.shallow_clone() } else { x.f_contiguous()? })
}

struct Shape {
    queries: i64,
    keys: i64,
    width: i64,
    /// Query heads per key head.
    times: i64,
}

impl Shape {
    fn from_operands(operands: Operands<'_>) -> Result<Self, KernelError> {
        let Operands { q, k, v, window: _ } = operands;
        let (q, k, v) = (q.size(), k.size(), v.size());
        match (q.as_slice(), k.as_slice(), v.as_slice()) {
            ([b, t, h, d], [kb, s, kv, kd], [vb, vs, vkv, _])
                if b == kb
                    && b == vb
                    && d == kd
                    && s == vs
                    && kv == vkv
                    && s >= t
                    && *kv > 0
                    && h % kv == 0 =>
            {
                Ok(Self { queries: *t, keys: *s, width: *d, times: h / kv })
            }
            _ => Err(KernelError::new(format!(
                "attention takes q [b, t, h, d], k [b, s, kv, d] and v [b, s, kv, e], got {q:?}, {k:?} and {v:?}"
            ))),
        }
    }

    fn scale(&self) -> f64 {
        1.0 / (self.width as f64).sqrt()
    }

    /// [b, h, time, width] views, key heads repeated.
    fn by_head(&self, operands: Operands<'_>) -> Result<(Tensor, Tensor, Tensor), KernelError> {
        let Operands { q, k, v, window: _ } = operands;
        let kv = |x: &Tensor| -> Result<Tensor, KernelError> {
            let all =
                if self.times == 1 { x.shallow_clone() } else { repeat_heads(x, self.times)? };
            Ok(all.f_transpose(1, 2)?)
        };
        Ok((q.f_transpose(1, 2)?, kv(k)?, kv(v)?))
    }

    /// 0 where a query sees a key, −∞ elsewhere, [t, s]; none if every query sees every key.
    fn mask(&self, operands: Operands<'_>) -> Result<Option<Tensor>, KernelError> {
        let Operands { q, window, .. } = operands;
        if self.queries == 1 && window.is_none_or(|w| w >= self.keys) {
            return Ok(None);
        }
        let device = q.device();
        let last = self.keys - self.queries;
        let at = |from: i64, to: i64| Tensor::f_arange_start(from, to, (Kind::Int64, device));
        let asks = at(last, self.keys)?.f_unsqueeze(1)?; // [t, 1]
        let back = asks.f_sub(&at(0, self.keys)?)?; // [t, s]: how long ago
        let mut hidden = back.f_lt(0)?;
        if let Some(window) = window {
            hidden = hidden.f_logical_or(&back.f_ge(window)?)?;
        }
        let zeros = Tensor::f_zeros([self.queries, self.keys], (q.kind(), device))?;
        Ok(Some(zeros.f_masked_fill(&hidden, f64::NEG_INFINITY)?))
    }

    /// q kᵀ / sqrt(d) where visible, −∞ elsewhere, [b, h, t, s].
    fn scores(
        &self,
        operands: Operands<'_>,
        q: &Tensor,
        k: &Tensor,
    ) -> Result<Tensor, KernelError> {
        let scores = q.f_matmul(&k.f_transpose(-2, -1)?)?.f_mul_scalar(self.scale())?;
        Ok(match self.mask(operands)? {
            Some(mask) => scores.f_add(&mask)?,
            None => scores,
        })
    }
}
