//! Causal softmax attention: our kernels on the CPU, libtorch's flash kernel on a GPU (both after Dao et al. 2022), or
//! the plain formula.
//!
//! q is [b, t, h, d], k is [b, s, kv, d] and v is [b, s, kv, e] with s ≥ t: queries are the last t of s positions. The
//! forward pass returns y [b, t, h, e] and lse [b, h, t], the backward pass dq, dk and dv. Query i sees the keys j with
//! 0 ≤ (s − t + i) − j < window, and query head j reads key head ⌊j·kv/h⌋. Options: a scale, a bound of the scores
//! (softcap), for each head a score without a value (sink), and for each head a slope by distance.
//!
//! The caller runs the path that `choose` returned. Softmax is in f32 (f64 in f64).

mod few;
mod fused;

use std::fmt;

use compiler::plan::Scores;
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
    /// The faster kernel, and the option that it does not support.
    Lacks(&'static str, &'static str),
}

/// The path on a device. `even`: whether keys are as wide as values; `width`: of a head; `kind`: of the operands.
pub fn choose(scores: &Scores, even: bool, width: i64, device: Device, kind: Kind) -> Path {
    let options =
        [("softcap", scores.softcap.is_some()), ("sink", scores.sink), ("slopes", scores.slopes)];
    let lacking = options.iter().find(|(_, given)| *given).map(|(name, _)| *name);
    if let (Device::Cuda(_), Some(option)) = (device, lacking) {
        Path::Reference(Reason::Lacks("libtorch's flash kernel", option))
    } else if let Device::Cuda(_) = device {
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
    } else if scores.slopes {
        Path::Reference(Reason::Lacks("the fused kernel", "slopes"))
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
            Self::Reference(Reason::Lacks(kernel, option)) => {
                write!(f, "reference ({kernel} has no {option})")
            }
        }
    }
}

/// The operands of attention.
#[derive(Debug, Clone, Copy)]
pub struct AttentionOperands<'a> {
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub window: Option<i64>,
    /// Factor of q kᵀ; None for 1 / sqrt(d).
    pub scale: Option<f64>,
    pub softcap: Option<f64>,
    /// \[h\]
    pub sink: Option<&'a Tensor>,
    /// \[h\]
    pub slopes: Option<&'a Tensor>,
}

impl<'a> AttentionOperands<'a> {
    /// Without options.
    pub fn plain(q: &'a Tensor, k: &'a Tensor, v: &'a Tensor, window: Option<i64>) -> Self {
        Self { q, k, v, window, scale: None, softcap: None, sink: None, slopes: None }
    }

    /// Calls `run`, our kernel by blocks, with the operands, converted to f32 if they are bf16.
    fn in_f32<R>(
        self,
        run: impl FnOnce(AttentionOperands<'_>) -> Result<R, KernelError>,
    ) -> Result<R, KernelError> {
        let [q, k, v] = [self.q, self.k, self.v].map(|x| cast(x, Kind::Float));
        let sink = self.sink.map(|sink| cast(sink, Kind::Float)).transpose()?;
        run(AttentionOperands { q: &q?, k: &k?, v: &v?, sink: sink.as_ref(), ..self })
    }
}

/// y [b, t, h, e] and lse [b, h, t].
pub fn forward(
    path: Path,
    operands: AttentionOperands<'_>,
) -> Result<(Tensor, Tensor), KernelError> {
    let shape = Shape::from_operands(operands)?;
    match path {
        Path::Fused(isa) if shape.queries <= few::QUERIES => {
            return few::forward(isa, &shape, operands);
        }
        Path::Fused(isa) => {
            return operands.in_f32(|operands| fused::forward(isa, &shape, operands));
        }
        Path::Flash => {
            let AttentionOperands { q, k, v, window, .. } = operands;
            let [q, k, v] = [q, k, v].map(last_dense);
            return ffi::flash_forward([&q?, &k?, &v?], shape.scale(), window);
        }
        Path::Reference(_) => {}
    }
    let (q, k, v) = shape.by_head(operands)?; // [b, h, t | s, d]
    let Scored { scores, slope: _ } = shape.scores(operands, &q, &k)?; // [b, h, t, s]
    let mut lse = scores.f_logsumexp([-1i64].as_slice(), true)?; // [b, h, t, 1]
    if let Some(sink) = operands.sink {
        lse = lse.f_logaddexp(&sink.f_reshape([-1, 1, 1])?)?;
    }
    let y = scores.f_sub(&lse)?.f_exp()?.f_matmul(&v)?;
    Ok((y.f_transpose(1, 2)?.f_contiguous()?, lse.f_squeeze_dim(-1)?))
}

/// Attention of one query for each of several sequences, q [1, n, h, d], over the sequence's own keys [1, s, kv, d] and
/// values [1, s, kv, e]: y [1, n, h, e] and lse [n, h, 1]. Each sequence gets the bits that it gets alone. Our kernel
/// only. The k and v in `operands` are ignored.
pub fn forward_each(
    path: Path,
    operands: AttentionOperands<'_>,
    [keys, values]: [&[&Tensor]; 2],
) -> Result<(Tensor, Tensor), KernelError> {
    let Path::Fused(isa) = path else {
        return Err(KernelError::new(format!("attention of several sequences by {path}")));
    };
    let q = operands.q.f_transpose(0, 1)?; // [n, 1, h, d]
    let mut shape = None;
    for (n, (k, v)) in keys.iter().zip(values).enumerate() {
        let q = q.f_narrow(0, n as i64, 1)?;
        shape = Some(Shape::from_operands(AttentionOperands { q: &q, k, v, ..operands })?);
    }
    let (Some(shape), true) = (shape, q.size().first() == Some(&(keys.len() as i64))) else {
        let message = format!("attention of {:?} to {} caches", q.size(), keys.len());
        return Err(KernelError::new(message));
    };
    let (y, lse) = few::each(isa, &shape, operands, &q, [keys, values])?;
    Ok((y.f_transpose(0, 1)?, lse))
}

/// dq, dk, dv, dsink and dslopes of sum(y ⊙ dy), from y and lse of the forward pass.
pub fn backward(
    path: Path,
    dy: &Tensor,
    operands: AttentionOperands<'_>,
    y: &Tensor,
    lse: &Tensor,
) -> Result<Vec<Tensor>, KernelError> {
    let shape = Shape::from_operands(operands)?;
    match path {
        Path::Fused(isa) => {
            let (dy, y) = (cast(dy, Kind::Float)?, cast(y, Kind::Float)?);
            return operands.in_f32(|operands| {
                let dsink = sink_gradient(&dy, &y, lse, operands.sink)?;
                let (dq, dk, dv) = fused::backward(isa, &shape, &dy, operands, &y, lse)?;
                Ok([dq, dk, dv].into_iter().chain(dsink).collect())
            });
        }
        Path::Flash => {
            let AttentionOperands { q, k, v, window, .. } = operands;
            let [dy, q, k, v, y] = [dy, q, k, v, y].map(last_dense);
            let (of, made) = ([&q?, &k?, &v?], [&y?, lse]);
            let (dq, dk, dv) = ffi::flash_backward(&dy?, of, made, shape.scale(), window)?;
            return Ok(vec![dq, dk, dv]);
        }
        Path::Reference(_) => {}
    }
    let dsink = sink_gradient(dy, y, lse, operands.sink)?;
    let (q, k, v) = shape.by_head(operands)?;
    let (dy, y) = (dy.f_transpose(1, 2)?, y.f_transpose(1, 2)?); // [b, h, t, e]
    let scale = shape.scale();
    let mut dslopes = None;
    let Scored { scores, slope } = shape.scores(operands, &q, &k)?;
    let p = scores.f_sub(&lse.f_unsqueeze(-1)?)?.f_exp()?;
    let dp = dy.f_matmul(&v.f_transpose(-2, -1)?)?; // [b, h, t, s]
    let along = dy.f_mul(&y)?.f_sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>)?;
    let mut ds = dp.f_sub(&along)?.f_mul(&p)?;
    if operands.slopes.is_some() {
        let back = shape.back(operands)?.f_to_kind(ds.kind())?; // [t, s]
        let all = ds.f_mul(&back)?.f_sum_dim_intlist([0i64, 2, 3].as_slice(), false, None)?;
        dslopes = Some(all.f_neg()?); // [h]
    }
    if let Some(slope) = slope {
        ds = ds.f_mul(&slope)?;
    }
    let ds = ds.f_mul_scalar(scale)?;
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
    Ok([rows(dq)?, kv(dk)?, kv(dv)?].into_iter().chain(dsink).chain(dslopes).collect())
}

/// −Σ_{b,t} exp(sink − lse) Σ dy ⊙ y, \[h\], if there is a sink.
fn sink_gradient(
    dy: &Tensor,
    y: &Tensor,
    lse: &Tensor,
    sink: Option<&Tensor>,
) -> Result<Option<Tensor>, KernelError> {
    let Some(sink) = sink else { return Ok(None) };
    let along = dy.f_mul(y)?.f_sum_dim_intlist([-1i64].as_slice(), false, None::<Kind>)?; // [b, t, h]
    let p = sink.f_unsqueeze(-1)?.f_sub(lse)?.f_exp()?; // [b, h, t]
    let all = p.f_mul(&along.f_transpose(1, 2)?)?;
    Ok(Some(all.f_sum_dim_intlist([0i64, 2].as_slice(), false, None::<Kind>)?.f_neg()?))
}

/// Scores, and the slope of their bound.
struct Scored {
    scores: Tensor,
    slope: Option<Tensor>,
}

/// x with dense channels, as the flash kernel requires.
fn last_dense(x: &Tensor) -> Result<Tensor, KernelError> {
    let dense = x.stride().last().is_none_or(|stride| *stride == 1);
    Ok(if dense { x.shallow_clone() } else { x.f_contiguous()? })
}

struct Shape {
    queries: i64,
    keys: i64,
    /// Query heads per key head.
    times: i64,
    /// Factor of q kᵀ.
    scale: f64,
}

impl Shape {
    fn from_operands(operands: AttentionOperands<'_>) -> Result<Self, KernelError> {
        let AttentionOperands { q, k, v, .. } = operands;
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
                let scale = operands.scale.unwrap_or_else(|| 1.0 / (*d as f64).sqrt());
                Ok(Self { queries: *t, keys: *s, times: h / kv, scale })
            }
            _ => Err(KernelError::new(format!(
                "attention takes q [b, t, h, d], k [b, s, kv, d] and v [b, s, kv, e], got {q:?}, {k:?} and {v:?}"
            ))),
        }
    }

    fn scale(&self) -> f64 {
        self.scale
    }

    /// [b, h, time, width] views, key heads repeated.
    fn by_head(
        &self,
        operands: AttentionOperands<'_>,
    ) -> Result<(Tensor, Tensor, Tensor), KernelError> {
        let AttentionOperands { q, k, v, .. } = operands;
        let kv = |x: &Tensor| -> Result<Tensor, KernelError> {
            let all =
                if self.times == 1 { x.shallow_clone() } else { repeat_heads(x, self.times)? };
            Ok(all.f_transpose(1, 2)?)
        };
        Ok((q.f_transpose(1, 2)?, kv(k)?, kv(v)?))
    }

    /// How long ago each key was for each query, [t, s]; negative for later keys.
    fn back(&self, operands: AttentionOperands<'_>) -> Result<Tensor, KernelError> {
        let options = (Kind::Int64, operands.q.device());
        let asks = Tensor::f_arange_start(self.keys - self.queries, self.keys, options)?;
        Ok(asks.f_unsqueeze(1)?.f_sub(&Tensor::f_arange(self.keys, options)?)?)
    }

    /// 0 where a query sees a key, −∞ elsewhere, [t, s]; none if every query sees every key.
    fn mask(&self, operands: AttentionOperands<'_>) -> Result<Option<Tensor>, KernelError> {
        let AttentionOperands { q, window, .. } = operands;
        if self.queries == 1 && window.is_none_or(|w| w >= self.keys) {
            return Ok(None);
        }
        let device = q.device();
        let back = self.back(operands)?;
        let mut hidden = back.f_lt(0)?;
        if let Some(window) = window {
            hidden = hidden.f_logical_or(&back.f_ge(window)?)?;
        }
        let zeros = Tensor::f_zeros([self.queries, self.keys], (q.kind(), device))?;
        Ok(Some(zeros.f_masked_fill(&hidden, f64::NEG_INFINITY)?))
    }

    /// scale · q kᵀ, bounded and lowered by distance, where visible, −∞ elsewhere, [b, h, t, s].
    fn scores(
        &self,
        operands: AttentionOperands<'_>,
        q: &Tensor,
        k: &Tensor,
    ) -> Result<Scored, KernelError> {
        let mut scores = q.f_matmul(&k.f_transpose(-2, -1)?)?.f_mul_scalar(self.scale())?;
        let mut slope = None;
        if let Some(cap) = operands.softcap {
            let bound = scores.f_div_scalar(cap)?.f_tanh()?;
            slope = Some(bound.f_square()?.f_neg()?.f_add_scalar(1.0)?);
            scores = bound.f_mul_scalar(cap)?;
        }
        if let Some(slopes) = operands.slopes {
            let back = self.back(operands)?.f_to_kind(scores.kind())?;
            scores = scores.f_sub(&slopes.f_reshape([-1, 1, 1])?.f_mul(&back)?)?;
        }
        if let Some(mask) = self.mask(operands)? {
            scores = scores.f_add(&mask)?;
        }
        Ok(Scored { scores, slope })
    }
}
