//! Gated linear attention (Yang et al. 2023, equation 3):
//!     S ← diag(exp g_t) S + k_t v_tᵀ,   y_t = scale Sᵀ q_t
//! From q, k, g [b, t, h, d], v [b, t, h, e] to y [b, t, h, e] and S [b, h, d, e]; or dq, dk, dv, dg.
//!
//! g may be [b, t, h], one gate for a head, or \[h\], one for all of its tokens. The chunked form then is the one with a
//! scalar gate.

use tch::{Kind, Tensor};

use super::super::{Isa, KernelError};
use super::fused;
use super::operands::{FusedOperands, ScanRule, StateLayout};
use super::{
    CHANNEL_CHUNK, Path, Result, SCALAR_CHUNK, Scanned, apply, apply_t, at, exactly, four, narrow,
    not_here, outer, reversed, scale, start, sum_last, wide,
};

#[derive(Debug, Clone, Copy)]
pub struct GlaOperands<'a> {
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub g: &'a Tensor,
    /// The factor of q; none for the inverse root of its width.
    pub scale: Option<f64>,
}

pub fn forward(path: Path, operands: GlaOperands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let like = operands.v;
    let [q, k, v, g] = &wide(operands.all())?;
    let operands = GlaOperands { q, k, v, g, scale: operands.scale };
    let Scanned { y, state } = match path {
        Path::Fused(isa) => chunked(isa, operands, state)?,
        Path::Reference(_) => {
            let g = &channel_gates(q, g)?;
            steps(GlaOperands { g, ..operands }, state)?
        }
        Path::Cuda(_) => return Err(not_here()),
    };
    Ok(Scanned { y: y.f_to_kind(like.kind())?, state })
}

/// From zero state: dq, dk, dv, dg.
pub fn backward(path: Path, dy: &Tensor, operands: GlaOperands<'_>) -> Result<[Tensor; 4]> {
    let like = operands.all();
    let ([q, k, v, g], [dy]) = (&wide(like)?, &wide([dy])?);
    let operands = GlaOperands { q, k, v, g, scale: operands.scale };
    let [dq, dk, dv, dg] = match path {
        Path::Fused(isa) => chunked_backward(isa, dy, operands)?,
        Path::Reference(_) => {
            let g = &channel_gates(q, g)?;
            steps_backward(dy, GlaOperands { g, ..operands })?
        }
        Path::Cuda(_) => return Err(not_here()),
    };
    narrow(&[dq, dk, dv, like_gates(&dg, g)?], like)
}

fn chunked(isa: Isa, operands: GlaOperands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    if operands.g.dim() == 4 {
        return fused::forward(
            isa,
            ScanRule::Channel,
            StateLayout::Keys,
            CHANNEL_CHUNK,
            operands.fused()?,
            state,
        );
    }
    let (g, ones) = operands.head_gates()?;
    let operands =
        FusedOperands { beta: Some(&ones), ..GlaOperands { g: &g, ..operands }.fused()? };
    fused::forward(isa, ScanRule::Scalar, StateLayout::Keys, SCALAR_CHUNK, operands, state)
}

/// dg by channel or by head, for all tokens.
fn chunked_backward(isa: Isa, dy: &Tensor, operands: GlaOperands<'_>) -> Result<[Tensor; 4]> {
    let grads = if operands.g.dim() == 4 {
        fused::backward(isa, ScanRule::Channel, CHANNEL_CHUNK, dy, operands.fused()?)?
    } else {
        let (g, ones) = operands.head_gates()?;
        let operands =
            FusedOperands { beta: Some(&ones), ..GlaOperands { g: &g, ..operands }.fused()? };
        fused::backward(isa, ScanRule::Scalar, SCALAR_CHUNK, dy, operands)?
    };
    Ok([grads.q, grads.k, grads.v, grads.g])
}

/// Gates by channel, [b, t, h, d], from those of any form.
pub(crate) fn channel_gates(q: &Tensor, g: &Tensor) -> Result<Tensor> {
    let size = four("q", q)?;
    Ok(if g.dim() == 4 { g.shallow_clone() } else { g.f_unsqueeze(-1)?.f_expand(size, false)? })
}

/// The gradient of the gates, from that of [`channel_gates`] or of one gate per head and token.
pub(crate) fn like_gates(dg: &Tensor, g: &Tensor) -> Result<Tensor> {
    let kind = dg.kind();
    if g.dim() == 4 || dg.dim() == g.dim() {
        return Ok(dg.shallow_clone());
    }
    // Sums are f32, or f64.
    let dg = if kind == Kind::BFloat16 { dg.f_to_kind(Kind::Float)? } else { dg.shallow_clone() };
    let dg = if dg.dim() == 4 { sum_last(&dg, 1)? } else { dg };
    let dg = match g.dim() {
        1 => dg.f_sum_dim_intlist([0i64, 1].as_slice(), false, None::<Kind>)?,
        _ => dg,
    };
    Ok(dg.f_to_kind(kind)?)
}

impl<'a> GlaOperands<'a> {
    pub(super) fn from_inputs(x: &[&'a Tensor], scale: Option<f64>) -> Result<Self> {
        let [q, k, v, g] = exactly(x)?;
        Ok(Self { q, k, v, g, scale })
    }

    fn all(self) -> [&'a Tensor; 4] {
        [self.q, self.k, self.v, self.g]
    }

    pub(super) fn fused(self) -> Result<FusedOperands<'a>> {
        let GlaOperands { q, k, v, g, scale: given } = self;
        let [_, _, _, d] = four("q", q)?;
        let scale = scale(given, d) as f32;
        Ok(FusedOperands { q, k, v, g, beta: None, low_rank: None, scale })
    }

    /// Gates of each token and head, and ones, the factors of values: [b, t, h].
    fn head_gates(self) -> Result<(Tensor, Tensor)> {
        let [b, t, h, _] = four("q", self.q)?;
        if !matches!(self.g.size().as_slice(), [.., heads] if *heads == h) {
            return Err(KernelError::new(format!("gates {:?} of {h} heads", self.g.size())));
        }
        let g = self.g.f_expand([b, t, h], false)?;
        Ok((g, self.q.f_new_ones([b, t, h], (self.q.kind(), self.q.device()))?))
    }
}

pub(super) fn steps(operands: GlaOperands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let GlaOperands { q, scale: given, .. } = operands;
    let [_, time, _, d] = four("q", q)?;
    let mut s = begin(operands, state)?;
    let mut y = Vec::new();
    for t in 0..time {
        s = step(operands, &s, t)?;
        y.push(apply_t(&s, &at(q, t)?)?);
    }
    Ok(Scanned { y: Tensor::f_stack(&y, 1)?.f_mul_scalar(scale(given, d))?, state: s })
}

/// With D = ∂/∂S_t: D gains scale q dyᵀ; dq = scale S dy, dk = D v, dv = Dᵀ k,
/// dg = exp g ⊙ Σ_e D ⊙ S_{t−1}; then D ← diag(exp g) D.
pub(super) fn steps_backward(dy: &Tensor, operands: GlaOperands<'_>) -> Result<[Tensor; 4]> {
    let GlaOperands { q, k, v, g, scale: given } = operands;
    let [_, time, _, d] = four("q", q)?;
    let mut states = vec![begin(operands, None)?];
    for t in 0..time {
        if let Some(before) = states.last() {
            states.push(step(operands, before, t)?);
        }
    }
    let (mut dq, mut dk, mut dv, mut dg) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut ds: Option<Tensor> = None;
    for t in (0..time).rev() {
        let (Some(after), Some(before)) = (states.pop(), states.last()) else { break };
        let dy = at(dy, t)?.f_mul_scalar(scale(given, d))?; // [b, h, e]
        let from_y = outer(&at(q, t)?, &dy)?;
        let ds_after = match ds {
            Some(ds) => ds.f_add(&from_y)?,
            None => from_y,
        };
        dq.push(apply(&after, &dy)?);
        dk.push(apply(&ds_after, &at(v, t)?)?);
        dv.push(apply_t(&ds_after, &at(k, t)?)?);
        let decay = at(g, t)?.f_exp()?; // [b, h, d]
        dg.push(sum_last(&ds_after.f_mul(before)?, 1)?.f_mul(&decay)?);
        ds = Some(ds_after.f_mul(&decay.f_unsqueeze(-1)?)?);
    }
    Ok([reversed(dq)?, reversed(dk)?, reversed(dv)?, reversed(dg)?])
}

fn begin(operands: GlaOperands<'_>, state: Option<&Tensor>) -> Result<Tensor> {
    let [b, _, h, d] = four("q", operands.q)?;
    let [_, _, _, e] = four("v", operands.v)?;
    start(state, [b, h, d, e], operands.q)
}

fn step(operands: GlaOperands<'_>, s: &Tensor, t: i64) -> Result<Tensor> {
    let GlaOperands { k, v, g, .. } = operands;
    let kept = s.f_mul(&at(g, t)?.f_exp()?.f_unsqueeze(-1)?)?;
    Ok(kept.f_add(&outer(&at(k, t)?, &at(v, t)?)?)?)
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::super::tests::{assert_close, gates, numbers};
    use super::*;
    use crate::kernels::path::{self, Reason};

    /// One gate for a head, of each token or of all, is the same gate for all of its channels.
    #[test]
    fn gates_of_heads_are_those_of_their_channels() {
        let size = [2, 83, 3, 8];
        let (q, k, v) = (numbers(1, &size), numbers(2, &size), numbers(3, &[2, 83, 3, 12]));
        let (dy, state) = (numbers(5, &[2, 83, 3, 12]), numbers(6, &[2, 3, 8, 12]));
        let fast = path::choose(Kind::Float, Device::Cpu);
        let steps = Path::Reference(Reason::Asked);
        for g in [gates(4, &[2, 83, 3], None), gates(4, &[3], None) * 0.01] {
            let all = |path: Path, kind: Kind, g: &Tensor| {
                let [q, k, v, g, dy, state] = [&q, &k, &v, g, &dy, &state].map(|x| x.to_kind(kind));
                let operands = GlaOperands { q: &q, k: &k, v: &v, g: &g, scale: Some(0.75) };
                let Scanned { y, state } = forward(path, operands, Some(&state)).unwrap();
                let gradients = backward(path, &dy, operands).unwrap();
                [y, state].into_iter().chain(gradients).collect::<Vec<Tensor>>()
            };
            let mut by_channel =
                all(steps, Kind::Double, &channel_gates(&q, &g).unwrap().contiguous());
            by_channel[5] = like_gates(&by_channel[5], &g).unwrap();
            for (path, kind) in [(fast, Kind::Float), (steps, Kind::Float), (steps, Kind::Double)] {
                let tolerance = if kind == Kind::Double { 1e-12 } else { 2e-5 };
                assert_close(&all(path, kind, &g), &by_channel, tolerance, "gates of heads");
            }
        }
    }
}
