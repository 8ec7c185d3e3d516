//! Gated linear attention (Yang et al. 2023, equation 3):
//!     S ← diag(exp g_t) S + k_t v_tᵀ,   y_t = d^(−1/2) Sᵀ q_t
//! In: q, k, g [b, t, h, d], v [b, t, h, e]. Out: y [b, t, h, e] and S [b, h, d, e]; or dq, dk, dv, dg.

use tch::Tensor;

use super::fused::{self, Rule};
use super::{
    CHANNEL_CHUNK, Path, Result, Scanned, apply, apply_t, at, exactly, four, narrow, not_here,
    outer, reversed, scale, start, sum_last, wide,
};

#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub g: &'a Tensor,
}

pub fn forward(path: Path, operands: Operands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let like = operands.v;
    let [q, k, v, g] = &wide(operands.all())?;
    let operands = Operands { q, k, v, g };
    let Scanned { y, state } = match path {
        Path::Fused(isa) => {
            fused::forward(isa, Rule::Channel, CHANNEL_CHUNK, operands.fused()?, state)?
        }
        Path::Reference(_) => steps(operands, state)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    Ok(Scanned { y: y.f_to_kind(like.kind())?, state })
}

/// From zero state: dq, dk, dv, dg.
pub fn backward(path: Path, dy: &Tensor, operands: Operands<'_>) -> Result<[Tensor; 4]> {
    let like = operands.all();
    let ([q, k, v, g], [dy]) = (&wide(like)?, &wide([dy])?);
    let operands = Operands { q, k, v, g };
    let grads = match path {
        Path::Fused(isa) => {
            let grads = fused::backward(isa, Rule::Channel, CHANNEL_CHUNK, dy, operands.fused()?)?;
            [grads.q, grads.k, grads.v, grads.g]
        }
        Path::Reference(_) => steps_backward(dy, operands)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    narrow(&grads, like)
}

impl<'a> Operands<'a> {
    pub(super) fn from_inputs(x: &[&'a Tensor]) -> Result<Self> {
        let [q, k, v, g] = exactly(x)?;
        Ok(Self { q, k, v, g })
    }

    fn all(self) -> [&'a Tensor; 4] {
        [self.q, self.k, self.v, self.g]
    }

    pub(super) fn fused(self) -> Result<fused::Operands<'a>> {
        let Operands { q, k, v, g } = self;
        let [_, _, _, d] = four("q", q)?;
        Ok(fused::Operands { q, k, v, g, beta: None, scale: scale(d) as f32 })
    }
}

pub(super) fn steps(operands: Operands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let Operands { q, k: _, v: _, g: _ } = operands;
    let [_, time, _, d] = four("q", q)?;
    let mut s = begin(operands, state)?;
    let mut y = Vec::new();
    for t in 0..time {
        s = step(operands, &s, t)?;
        y.push(apply_t(&s, &at(q, t)?)?);
    }
    Ok(Scanned { y: Tensor::f_stack(&y, 1)?.f_mul_scalar(scale(d))?, state: s })
}

/// With D = ∂/∂S_t: D gains d^(−1/2) q dyᵀ; dq = d^(−1/2) S dy, dk = D v, dv = Dᵀ k,
/// dg = exp g ⊙ Σ_e D ⊙ S_{t−1}; then D ← diag(exp g) D.
pub(super) fn steps_backward(dy: &Tensor, operands: Operands<'_>) -> Result<[Tensor; 4]> {
    let Operands { q, k, v, g } = operands;
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
        let dy = at(dy, t)?.f_mul_scalar(scale(d))?; // [b, h, e]
        let from_y = outer(&at(q, t)?, &dy)?;
        let whole = match ds {
            Some(ds) => ds.f_add(&from_y)?,
            None => from_y,
        };
        dq.push(apply(&after, &dy)?);
        dk.push(apply(&whole, &at(v, t)?)?);
        dv.push(apply_t(&whole, &at(k, t)?)?);
        let decay = at(g, t)?.f_exp()?; // [b, h, d]
        dg.push(sum_last(&whole.f_mul(before)?, 1)?.f_mul(&decay)?);
        ds = Some(whole.f_mul(&decay.f_unsqueeze(-1)?)?);
    }
    Ok([reversed(dq)?, reversed(dk)?, reversed(dv)?, reversed(dg)?])
}

fn begin(operands: Operands<'_>, state: Option<&Tensor>) -> Result<Tensor> {
    let [b, _, h, d] = four("q", operands.q)?;
    let [_, _, _, e] = four("v", operands.v)?;
    start(state, [b, h, d, e], operands.q)
}

fn step(operands: Operands<'_>, s: &Tensor, t: i64) -> Result<Tensor> {
    let Operands { q: _, k, v, g } = operands;
    let kept = s.f_mul(&at(g, t)?.f_exp()?.f_unsqueeze(-1)?)?;
    Ok(kept.f_add(&outer(&at(k, t)?, &at(v, t)?)?)?)
}
