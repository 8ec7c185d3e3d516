//! The gated delta rule (Yang et al. 2024, equation 10):
//!     S ← exp(g_t) S,   S ← S + β_t k_t (v_t − Sᵀ k_t)ᵀ,   y_t = d^(−1/2) Sᵀ q_t
//! In: q, k [b, t, h, d], v [b, t, h, e], beta and g [b, t, h]. Out: y [b, t, h, e] and S [b, h, d, e]; or dq, dk,
//! dv, dbeta, dg.

use tch::Tensor;

use super::super::KernelError;
use super::fused::{self, Rule};
use super::{
    Path, Result, SCALAR_CHUNK, Scanned, apply, apply_t, at, exactly, four, narrow, not_here,
    outer, over_matrix, reversed, scale, start, sum_last, wide,
};

#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub beta: &'a Tensor,
    pub g: &'a Tensor,
}

pub fn forward(path: Path, operands: Operands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let like = operands.v;
    let [q, k, v, beta, g] = &wide(operands.all())?;
    let operands = Operands { q, k, v, beta, g };
    let Scanned { y, state } = match path {
        Path::Fused(isa) => {
            fused::forward(isa, Rule::Delta, SCALAR_CHUNK, operands.fused()?, state)?
        }
        Path::Reference(_) => steps(operands, state)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    Ok(Scanned { y: y.f_to_kind(like.kind())?, state })
}

/// From zero state: dq, dk, dv, dbeta, dg.
pub fn backward(path: Path, dy: &Tensor, operands: Operands<'_>) -> Result<[Tensor; 5]> {
    let like = operands.all();
    let ([q, k, v, beta, g], [dy]) = (&wide(like)?, &wide([dy])?);
    let operands = Operands { q, k, v, beta, g };
    let grads = match path {
        Path::Fused(isa) => {
            let grads = fused::backward(isa, Rule::Delta, SCALAR_CHUNK, dy, operands.fused()?)?;
            let beta = grads.beta.ok_or_else(|| KernelError::new("no gradient of beta".into()))?;
            [grads.q, grads.k, grads.v, beta, grads.g]
        }
        Path::Reference(_) => steps_backward(dy, operands)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    narrow(&grads, like)
}

impl<'a> Operands<'a> {
    pub(super) fn from_inputs(x: &[&'a Tensor]) -> Result<Self> {
        let [q, k, v, beta, g] = exactly(x)?;
        Ok(Self { q, k, v, beta, g })
    }

    fn all(self) -> [&'a Tensor; 5] {
        [self.q, self.k, self.v, self.beta, self.g]
    }

    pub(super) fn fused(self) -> Result<fused::Operands<'a>> {
        let Operands { q, k, v, beta, g } = self;
        let [_, _, _, d] = four("q", q)?;
        Ok(fused::Operands { q, k, v, g, beta: Some(beta), scale: scale(d) as f32 })
    }
}

pub(super) fn steps(operands: Operands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let [_, time, _, d] = four("q", operands.q)?;
    let mut s = begin(operands, state)?;
    let mut y = Vec::new();
    for t in 0..time {
        s = Step::compute(operands, &s, t)?.after;
        y.push(apply_t(&s, &at(operands.q, t)?)?);
    }
    Ok(Scanned { y: Tensor::f_stack(&y, 1)?.f_mul_scalar(scale(d))?, state: s })
}

/// With D = ∂/∂S_t and the error r = v − S′ᵀ k of the decayed state S′: D gains d^(−1/2) q dyᵀ;
/// dq = d^(−1/2) S dy; du = Dᵀ k; dβ = du · r; dv = β du; D′ = D − k dvᵀ; dk = D (β r) − S′ dv;
/// dg = exp g Σ D′ ⊙ S_{t−1}; then D ← exp(g) D′.
pub(super) fn steps_backward(dy: &Tensor, operands: Operands<'_>) -> Result<[Tensor; 5]> {
    let Operands { q, k, v: _, beta, g: _ } = operands;
    let [_, time, _, d] = four("q", q)?;
    let mut states = vec![begin(operands, None)?];
    for t in 0..time {
        if let Some(before) = states.last() {
            states.push(Step::compute(operands, before, t)?.after);
        }
    }
    let (mut dq, mut dk, mut dv) = (Vec::new(), Vec::new(), Vec::new());
    let (mut dbeta, mut dg) = (Vec::new(), Vec::new());
    let mut ds: Option<Tensor> = None;
    for t in (0..time).rev() {
        states.pop();
        let Some(before) = states.last() else { break };
        let Step { decay, decayed, error, after } = Step::compute(operands, before, t)?;
        let dy = at(dy, t)?.f_mul_scalar(scale(d))?; // [b, h, e]
        let (k, beta) = (at(k, t)?, at(beta, t)?.f_unsqueeze(-1)?);
        let from_y = outer(&at(q, t)?, &dy)?;
        let whole = match ds {
            Some(ds) => ds.f_add(&from_y)?,
            None => from_y,
        };
        dq.push(apply(&after, &dy)?);
        let du = apply_t(&whole, &k)?; // [b, h, e]
        dbeta.push(sum_last(&du.f_mul(&error)?, 1)?);
        let dr = du.f_mul(&beta)?;
        let dk_in = apply(&whole, &error.f_mul(&beta)?)?;
        dk.push(dk_in.f_sub(&apply(&decayed, &dr)?)?);
        let d_decayed = whole.f_sub(&outer(&k, &dr)?)?;
        dv.push(dr);
        dg.push(sum_last(&d_decayed.f_mul(before)?, 2)?.f_mul(&decay)?);
        ds = Some(d_decayed.f_mul(&over_matrix(&decay)?)?);
    }
    Ok([reversed(dq)?, reversed(dk)?, reversed(dv)?, reversed(dbeta)?, reversed(dg)?])
}

fn begin(operands: Operands<'_>, state: Option<&Tensor>) -> Result<Tensor> {
    let [b, _, h, d] = four("q", operands.q)?;
    let [_, _, _, e] = four("v", operands.v)?;
    start(state, [b, h, d, e], operands.q)
}

/// One token's work.
struct Step {
    /// exp g, [b, h]
    decay: Tensor,
    /// S′, [b, h, d, e]
    decayed: Tensor,
    /// v − S′ᵀ k, [b, h, e]
    error: Tensor,
    after: Tensor,
}

impl Step {
    fn compute(operands: Operands<'_>, s: &Tensor, t: i64) -> Result<Step> {
        let Operands { q: _, k, v, beta, g } = operands;
        let (k, beta) = (at(k, t)?, at(beta, t)?.f_unsqueeze(-1)?);
        let decay = at(g, t)?.f_exp()?;
        let decayed = s.f_mul(&over_matrix(&decay)?)?;
        let error = at(v, t)?.f_sub(&apply_t(&decayed, &k)?)?;
        let after = decayed.f_add(&outer(&k, &error.f_mul(&beta)?)?)?;
        Ok(Step { decay, decayed, error, after })
    }
}
