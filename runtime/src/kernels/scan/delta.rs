//! The gated delta rule (Yang et al. 2024, equation 10):
//!     S ← exp(g_t) S,   S ← S + β_t k_t (v_t − Sᵀ k_t)ᵀ,   y_t = scale Sᵀ q_t
//! From q, k [b, t, h, d], v [b, t, h, e], beta and g [b, t, h] to y [b, t, h, e] and S [b, h, d, e]; or dq, dk,
//! dv, dbeta, dg.
//!
//! Several updates a token are as many tokens (`Spread`).

use tch::Tensor;

use super::super::KernelError;
use super::fused;
use super::operands::{FusedOperands, ScanRule, StateLayout};
use super::{
    Path, Result, SCALAR_CHUNK, Scanned, apply, apply_t, at, exactly, four, narrow, not_here,
    outer, over_matrix, reversed, scale, start, sum_last, wide,
};

#[derive(Debug, Clone, Copy)]
pub struct DeltaOperands<'a> {
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub beta: &'a Tensor,
    pub g: &'a Tensor,
    /// The factor of q; none for the inverse root of its width.
    pub scale: Option<f64>,
}

pub fn forward(path: Path, operands: DeltaOperands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let like = operands.v;
    let [q, k, v, beta, g] = &wide(operands.all())?;
    let operands = DeltaOperands { q, k, v, beta, g, scale: operands.scale };
    let Scanned { y, state } = match path {
        Path::Fused(isa) => fused::forward(
            isa,
            ScanRule::Delta,
            StateLayout::Keys,
            SCALAR_CHUNK,
            operands.fused()?,
            state,
        )?,
        Path::Reference(_) => steps(operands, state)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    Ok(Scanned { y: y.f_to_kind(like.kind())?, state })
}

/// From zero state: dq, dk, dv, dbeta, dg.
pub fn backward(path: Path, dy: &Tensor, operands: DeltaOperands<'_>) -> Result<[Tensor; 5]> {
    let like = operands.all();
    let ([q, k, v, beta, g], [dy]) = (&wide(like)?, &wide([dy])?);
    let operands = DeltaOperands { q, k, v, beta, g, scale: operands.scale };
    let grads = match path {
        Path::Fused(isa) => {
            let grads = fused::backward(isa, ScanRule::Delta, SCALAR_CHUNK, dy, operands.fused()?)?;
            let beta = grads.beta.ok_or_else(|| KernelError::new("no gradient of beta".into()))?;
            [grads.q, grads.k, grads.v, beta, grads.g]
        }
        Path::Reference(_) => steps_backward(dy, operands)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    narrow(&grads, like)
}

impl<'a> DeltaOperands<'a> {
    pub(super) fn from_inputs(x: &[&'a Tensor], scale: Option<f64>) -> Result<Self> {
        let [q, k, v, beta, g] = exactly(x)?;
        Ok(Self { q, k, v, beta, g, scale })
    }

    fn all(self) -> [&'a Tensor; 5] {
        [self.q, self.k, self.v, self.beta, self.g]
    }

    pub(super) fn fused(self) -> Result<FusedOperands<'a>> {
        let DeltaOperands { q, k, v, beta, g, scale: given } = self;
        let [_, _, _, d] = four("q", q)?;
        let scale = scale(given, d) as f32;
        Ok(FusedOperands { q, k, v, g, beta: Some(beta), low_rank: None, scale })
    }
}

pub(super) fn steps(operands: DeltaOperands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let [_, time, _, d] = four("q", operands.q)?;
    let mut s = begin(operands, state)?;
    let mut y = Vec::new();
    for t in 0..time {
        s = Step::compute(operands, &s, t)?.after;
        y.push(apply_t(&s, &at(operands.q, t)?)?);
    }
    Ok(Scanned { y: Tensor::f_stack(&y, 1)?.f_mul_scalar(scale(operands.scale, d))?, state: s })
}

/// With D = ∂/∂S_t and the error r = v − S′ᵀ k of the decayed state S′: D gains scale q dyᵀ; dq = scale S dy; du = Dᵀ k; dβ = du · r; dv = β du; D′ = D − k dvᵀ; dk = D (β r) − S′ dv;
/// dg = exp g Σ D′ ⊙ S_{t−1}; then D ← exp(g) D′.
pub(super) fn steps_backward(dy: &Tensor, operands: DeltaOperands<'_>) -> Result<[Tensor; 5]> {
    let DeltaOperands { q, k, v: _, beta, g: _, scale: given } = operands;
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
        let dy = at(dy, t)?.f_mul_scalar(scale(given, d))?; // [b, h, e]
        let (k, beta) = (at(k, t)?, at(beta, t)?.f_unsqueeze(-1)?);
        let from_y = outer(&at(q, t)?, &dy)?;
        let ds_after = match ds {
            Some(ds) => ds.f_add(&from_y)?,
            None => from_y,
        };
        dq.push(apply(&after, &dy)?);
        let du = apply_t(&ds_after, &k)?; // [b, h, e]
        dbeta.push(sum_last(&du.f_mul(&error)?, 1)?);
        let dr = du.f_mul(&beta)?;
        let dk_in = apply(&ds_after, &error.f_mul(&beta)?)?;
        dk.push(dk_in.f_sub(&apply(&decayed, &dr)?)?);
        let d_decayed = ds_after.f_sub(&outer(&k, &dr)?)?;
        dv.push(dr);
        dg.push(sum_last(&d_decayed.f_mul(before)?, 2)?.f_mul(&decay)?);
        ds = Some(d_decayed.f_mul(&over_matrix(&decay)?)?);
    }
    Ok([reversed(dq)?, reversed(dk)?, reversed(dv)?, reversed(dbeta)?, reversed(dg)?])
}

fn begin(operands: DeltaOperands<'_>, state: Option<&Tensor>) -> Result<Tensor> {
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
    fn compute(operands: DeltaOperands<'_>, s: &Tensor, t: i64) -> Result<Step> {
        let DeltaOperands { k, v, beta, g, .. } = operands;
        let (k, beta) = (at(k, t)?, at(beta, t)?.f_unsqueeze(-1)?);
        let decay = at(g, t)?.f_exp()?;
        let decayed = s.f_mul(&over_matrix(&decay)?)?;
        let error = at(v, t)?.f_sub(&apply_t(&decayed, &k)?)?;
        let after = decayed.f_add(&outer(&k, &error.f_mul(&beta)?)?)?;
        Ok(Step { decay, decayed, error, after })
    }
}

/// `steps` updates a token as `steps` tokens: the first has the gate, the last has the query and the result, and k, v
/// and beta, which have `steps` times the heads, are cut as they are.
pub(super) struct Spread {
    /// q, k, v, beta, g
    all: [Tensor; 5],
    steps: i64,
}

impl Spread {
    pub(super) fn new(x: &[&Tensor], steps: i64) -> Result<Self> {
        let [q, k, v, beta, g] = exactly(x)?;
        let cut = |x: &Tensor| -> Result<Tensor> {
            let mut size = x.size();
            if let [_, time, heads, ..] = &mut size[..] {
                *time *= steps;
                *heads /= steps;
            }
            Ok(x.f_contiguous()?.f_view(size.as_slice())?)
        };
        let all =
            [at_step(q, steps, steps - 1)?, cut(k)?, cut(v)?, cut(beta)?, at_step(g, steps, 0)?];
        Ok(Self { all, steps })
    }

    pub(super) fn operands(&self) -> [&Tensor; 5] {
        self.all.each_ref()
    }

    /// Each token's last row.
    pub(super) fn last(&self, x: &Tensor) -> Result<Tensor> {
        one_step(x, self.steps, self.steps - 1)
    }

    /// Rows for the last of each token's updates, zeros for the others.
    pub(super) fn at_last(&self, x: &Tensor) -> Result<Tensor> {
        at_step(x, self.steps, self.steps - 1)
    }

    /// From the gradients of the spread operands.
    pub(super) fn gradients(&self, gradients: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let refs: Vec<&Tensor> = gradients.iter().collect();
        let [q, k, v, beta, g] = exactly(&refs)?;
        let by_token = |x: &Tensor| -> Result<Tensor> {
            let mut size = x.size();
            if let [_, time, heads, ..] = &mut size[..] {
                *time /= self.steps;
                *heads *= self.steps;
            }
            Ok(x.f_contiguous()?.f_view(size.as_slice())?)
        };
        Ok(vec![
            self.last(q)?,
            by_token(k)?,
            by_token(v)?,
            by_token(beta)?,
            one_step(g, self.steps, 0)?,
        ])
    }
}

/// [b, t, …] -> [b, t · steps, …], zeros but at one step of each token.
fn at_step(x: &Tensor, steps: i64, step: i64) -> Result<Tensor> {
    let mut size = x.size();
    size.insert(2, steps);
    let spread = x.f_new_zeros(size.as_slice(), (x.kind(), x.device()))?;
    spread.f_select(2, step)?.f_copy_(x)?;
    Ok(spread.f_flatten(1, 2)?)
}

/// [b, t · steps, …] -> [b, t, …], one step of each token.
fn one_step(x: &Tensor, steps: i64, step: i64) -> Result<Tensor> {
    Ok(x.f_unflatten(1, [-1, steps].as_slice())?.f_select(2, step)?.f_contiguous()?)
}

#[cfg(test)]
mod tests {
    use compiler::op::ScanKind;
    use tch::{Device, Kind, Tensor};

    use super::super::tests::{assert_close, gates, numbers};
    use super::super::{Settings, backward, forward};
    use super::*;
    use crate::kernels::path::{self, Reason};

    /// Three updates a token are three tokens, of which the first has the gate and the last the query: written out.
    #[test]
    fn several_updates_are_several_tokens() {
        let (b, t, h, d, e, n) = (2, 11, 2, 5, 4, 3);
        let k = numbers(2, &[b, t, n * h, d]);
        let x = [
            numbers(1, &[b, t, h, d]),
            &k / k.norm_scalaropt_dim(2, [-1i64].as_slice(), true),
            numbers(3, &[b, t, n * h, e]),
            (numbers(5, &[b, t, n * h]) + 1.0) * 0.5,
            gates(4, &[b, t, h], Some(0.3)),
        ];
        let (dy, start) = (numbers(6, &[b, t, h, e]), numbers(7, &[b, h, d, e]));
        let settings = Settings { scale: Some(0.5), steps: n };
        let exact = x.each_ref().map(|x| x.to_kind(Kind::Double).set_requires_grad(true));
        let by_hand = |state: Option<&Tensor>| {
            let [q, k, v, beta, g] = &exact;
            let mut s = match state {
                Some(state) => state.to_kind(Kind::Double),
                None => Tensor::zeros([b, h, d, e], (Kind::Double, Device::Cpu)),
            };
            let mut y = Vec::new();
            for t in 0..t {
                s = g.select(1, t).exp().unsqueeze(-1).unsqueeze(-1) * s;
                for i in 0..n {
                    let now = |x: &Tensor| x.select(1, t).narrow(1, i * h, h);
                    let (k, v, beta) = (now(k), now(v), now(beta).unsqueeze(-1));
                    let error = (v - k.unsqueeze(-2).matmul(&s).squeeze_dim(-2)) * beta;
                    s = k.unsqueeze(-1) * error.unsqueeze(-2) + s;
                }
                y.push(q.select(1, t).unsqueeze(-2).matmul(&s).squeeze_dim(-2) * 0.5);
            }
            (Tensor::stack(&y, 1), s)
        };
        let (y, state) = by_hand(Some(&start));
        let loss = (by_hand(None).0 * &dy).sum(Kind::Double);
        let mut want = vec![y.detach(), state.detach()];
        want.extend(Tensor::run_backward(&[loss], &exact.each_ref(), false, false));
        let fast = path::choose(Kind::Float, Device::Cpu);
        for path in [fast, Path::Reference(Reason::Asked)] {
            let x = x.each_ref();
            let scanned = forward(ScanKind::Delta, path, &x, Some(&start), settings).unwrap();
            let gradients = backward(ScanKind::Delta, path, &dy, &x, settings).unwrap();
            let got: Vec<Tensor> =
                [scanned.y, scanned.state].into_iter().chain(gradients).collect();
            assert_close(&got, &want, 2e-5, "steps");
        }
    }
}
