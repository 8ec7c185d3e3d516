//! The delta rule with a transition that is diagonal plus low rank (Peng et al. 2025, "RWKV-7", section 3):
//!     S ← diag(exp g_t) S + b_t (Sᵀ a_t)ᵀ + k_t v_tᵀ,   y_t = scale Sᵀ q_t
//! From q, k, a, b, g [b, t, h, d], v [b, t, h, e] to y [b, t, h, e] and S [b, h, d, e]; or dq, dk, dv, da, db, dg.

use tch::Tensor;

use super::super::KernelError;
use super::fused;
use super::operands::{FusedOperands, ScanRule, StateLayout};
use super::{
    CHANNEL_CHUNK, Path, Result, Scanned, apply, apply_t, at, exactly, four, narrow, not_here,
    outer, reversed, scale, start, sum_last, wide,
};

#[derive(Debug, Clone, Copy)]
pub struct DplrOperands<'a> {
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub a: &'a Tensor,
    pub b: &'a Tensor,
    pub g: &'a Tensor,
    /// The factor of q; none for the inverse root of its width.
    pub scale: Option<f64>,
}

pub fn forward(path: Path, operands: DplrOperands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let like = operands.v;
    let [q, k, v, a, b, g] = &wide(operands.all())?;
    let operands = DplrOperands { q, k, v, a, b, g, scale: operands.scale };
    let Scanned { y, state } = match path {
        Path::Fused(isa) => fused::forward(
            isa,
            ScanRule::LowRank,
            StateLayout::Keys,
            CHANNEL_CHUNK,
            operands.fused()?,
            state,
        )?,
        Path::Reference(_) => steps(operands, state)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    Ok(Scanned { y: y.f_to_kind(like.kind())?, state })
}

/// From zero state: dq, dk, dv, da, db, dg.
pub fn backward(path: Path, dy: &Tensor, operands: DplrOperands<'_>) -> Result<[Tensor; 6]> {
    let like = operands.all();
    let ([q, k, v, a, b, g], [dy]) = (&wide(like)?, &wide([dy])?);
    let operands = DplrOperands { q, k, v, a, b, g, scale: operands.scale };
    let grads = match path {
        Path::Fused(isa) => {
            let grads =
                fused::backward(isa, ScanRule::LowRank, CHANNEL_CHUNK, dy, operands.fused()?)?;
            let missing = || KernelError::new("no gradients of a and b".to_owned());
            let [a, b] = grads.low_rank.ok_or_else(missing)?;
            [grads.q, grads.k, grads.v, a, b, grads.g]
        }
        Path::Reference(_) => steps_backward(dy, operands)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    narrow(&grads, like)
}

impl<'a> DplrOperands<'a> {
    pub(super) fn from_inputs(x: &[&'a Tensor], scale: Option<f64>) -> Result<Self> {
        let [q, k, v, a, b, g] = exactly(x)?;
        Ok(Self { q, k, v, a, b, g, scale })
    }

    fn all(self) -> [&'a Tensor; 6] {
        [self.q, self.k, self.v, self.a, self.b, self.g]
    }

    fn fused(self) -> Result<FusedOperands<'a>> {
        let DplrOperands { q, k, v, a, b, g, scale: given } = self;
        let [_, _, _, d] = four("q", q)?;
        let scale = scale(given, d) as f32;
        Ok(FusedOperands { q, k, v, g, beta: None, low_rank: Some([a, b]), scale })
    }
}

fn steps(operands: DplrOperands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let [_, time, _, d] = four("q", operands.q)?;
    let mut s = begin(operands, state)?;
    let mut y = Vec::new();
    for t in 0..time {
        s = step(operands, &s, t)?;
        y.push(apply_t(&s, &at(operands.q, t)?)?);
    }
    Ok(Scanned { y: Tensor::f_stack(&y, 1)?.f_mul_scalar(scale(operands.scale, d))?, state: s })
}

/// With D = ∂/∂S_t and w = S_{t−1}ᵀ a: D gains scale q dyᵀ; dq = scale S dy, dk = D v, dv = Dᵀ k, db = D w, dw = Dᵀ b,
/// da = S_{t−1} dw, dg = exp g ⊙ Σ_e D ⊙ S_{t−1}; then D ← diag(exp g) D + a dwᵀ.
fn steps_backward(dy: &Tensor, operands: DplrOperands<'_>) -> Result<[Tensor; 6]> {
    let DplrOperands { q, k, v, a, b, g, scale: given } = operands;
    let [_, time, _, d] = four("q", q)?;
    let mut states = vec![begin(operands, None)?];
    for t in 0..time {
        if let Some(before) = states.last() {
            states.push(step(operands, before, t)?);
        }
    }
    let (mut dq, mut dk, mut dv) = (Vec::new(), Vec::new(), Vec::new());
    let (mut da, mut db, mut dg) = (Vec::new(), Vec::new(), Vec::new());
    let mut ds = begin(operands, None)?;
    for t in (0..time).rev() {
        let (Some(after), Some(before)) = (states.pop(), states.last()) else { break };
        let dy = at(dy, t)?.f_mul_scalar(scale(given, d))?; // [b, h, e]
        let (a, b) = (&at(a, t)?, &at(b, t)?);
        ds = ds.f_add(&outer(&at(q, t)?, &dy)?)?;
        dq.push(apply(&after, &dy)?);
        dk.push(apply(&ds, &at(v, t)?)?);
        dv.push(apply_t(&ds, &at(k, t)?)?);
        db.push(apply(&ds, &apply_t(before, a)?)?);
        let dw = apply_t(&ds, b)?; // [b, h, e]
        da.push(apply(before, &dw)?);
        let decay = at(g, t)?.f_exp()?; // [b, h, d]
        dg.push(sum_last(&ds.f_mul(before)?, 1)?.f_mul(&decay)?);
        ds = ds.f_mul(&decay.f_unsqueeze(-1)?)?.f_add(&outer(a, &dw)?)?;
    }
    let [dq, dk, dv] = [reversed(dq)?, reversed(dk)?, reversed(dv)?];
    Ok([dq, dk, dv, reversed(da)?, reversed(db)?, reversed(dg)?])
}

fn begin(operands: DplrOperands<'_>, state: Option<&Tensor>) -> Result<Tensor> {
    let [b, _, h, d] = four("q", operands.q)?;
    let [_, _, _, e] = four("v", operands.v)?;
    start(state, [b, h, d, e], operands.q)
}

fn step(operands: DplrOperands<'_>, s: &Tensor, t: i64) -> Result<Tensor> {
    let DplrOperands { k, v, a, b, g, .. } = operands;
    let decayed = s.f_mul(&at(g, t)?.f_exp()?.f_unsqueeze(-1)?)?;
    let carried = decayed.f_add(&outer(&at(b, t)?, &apply_t(s, &at(a, t)?)?)?)?;
    Ok(carried.f_add(&outer(&at(k, t)?, &at(v, t)?)?)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tch::{Device, Kind};

    use super::super::tests::{assert_close, gates, numbers};
    use super::*;
    use crate::kernels::path::{self, Reason};

    const STEPS: Path = Path::Reference(Reason::Asked);

    /// q, k, v, a, b, g, dy, state. The transition's eigenvalues are within the unit circle: a has length 1, and b is
    /// −a times numbers in [0, 2] or, with `strength`, what RWKV-7 has.
    fn case([b, t, h, d, e]: [i64; 5], strength: Option<f64>) -> [Tensor; 8] {
        let a = numbers(4, &[b, t, h, d]);
        let norm = a.square().sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>).sqrt() + 1e-6;
        let a = a / norm;
        let g = gates(6, &[b, t, h, d], strength);
        // (diag(e^g) − c a aᵀ) with c ≤ 1 and e^g a for a: contractions for gates of any strength.
        let rate = (numbers(5, &[b, t, h, 1]) + 1.0) * 0.5;
        let low = -(g.exp() * &a);
        [
            numbers(1, &[b, t, h, d]),
            numbers(2, &[b, t, h, d]),
            numbers(3, &[b, t, h, e]),
            low,
            a * rate,
            g,
            numbers(7, &[b, t, h, e]),
            numbers(8, &[b, h, d, e]),
        ]
    }

    fn all(path: Path, case: &[Tensor; 8], scale: Option<f64>, stateful: bool) -> Vec<Tensor> {
        let [q, k, v, a, b, g, dy, s] = case;
        let operands = DplrOperands { q, k, v, a, b, g, scale };
        let Scanned { y, state } = forward(path, operands, stateful.then_some(s)).unwrap();
        [y, state].into_iter().chain(backward(path, dy, operands).unwrap()).collect()
    }

    fn fast() -> Path {
        path::choose(Kind::Float, Device::Cpu)
    }

    fn exact(case: &[Tensor; 8], scale: Option<f64>, stateful: bool) -> Vec<Tensor> {
        all(STEPS, &case.each_ref().map(|x| x.to_kind(Kind::Double)), scale, stateful)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn chunked_is_step_by_step(
            b in 1i64..=2, t in 1i64..=90, h in 1i64..=3, d in 1i64..=40, e in 1i64..=40,
            strength in prop_oneof![Just(None), Just(Some(0.0)), Just(Some(0.3)), Just(Some(50.0))],
            scale in prop_oneof![Just(None), Just(Some(1.5))],
            stateful in any::<bool>(),
        ) {
            let case = case([b, t, h, d, e], strength);
            let want = exact(&case, scale, stateful);
            assert_close(&all(fast(), &case, scale, stateful), &want, 2e-5, "dplr");
        }
    }

    /// The reference's handwritten backward is libtorch's gradient of its forward.
    #[test]
    fn the_reference_is_autograd() {
        let leaves = case([2, 9, 2, 4, 3], None).map(|x| x.to_kind(Kind::Double));
        let [q, k, v, a, b, g, dy, _] = leaves.map(|x| x.set_requires_grad(true));
        let operands = DplrOperands { q: &q, k: &k, v: &v, a: &a, b: &b, g: &g, scale: Some(0.7) };
        let loss = (steps(operands, None).unwrap().y * &dy).sum(Kind::Double);
        let theirs = Tensor::run_backward(&[loss], &operands.all(), false, false);
        assert_close(&steps_backward(&dy, operands).unwrap(), &theirs, 1e-12, "autograd");
    }

    #[test]
    fn long_times_and_strong_gates_lose_nothing() {
        for strength in [None, Some(1e-6), Some(1e4)] {
            let case = case([1, 1500, 1, 4, 4], strength);
            let want = exact(&case, None, false);
            assert_close(&all(fast(), &case, None, false), &want, 5e-5, &format!("{strength:?}"));
        }
    }

    #[test]
    fn wide_heads() {
        for (d, e) in [(64, 64), (128, 128), (64, 128)] {
            let case = case([1, 70, 1, d, e], None);
            assert_close(&all(fast(), &case, None, true), &exact(&case, None, true), 2e-5, "wide");
        }
    }

    #[test]
    fn threads_change_no_bit() {
        let case = case([2, 100, 3, 16, 24], None);
        let before = tch::get_num_threads();
        let runs = [1, 2, 3].map(|threads| {
            tch::set_num_threads(threads);
            all(fast(), &case, None, true)
        });
        tch::set_num_threads(before);
        for (i, first) in runs[0].iter().enumerate() {
            assert!(runs.iter().all(|run| run[i].equal(first)), "result {i}");
        }
    }

    #[test]
    fn bf16_operands_meet_f32_states() {
        let case = case([2, 21, 2, 8, 12], Some(0.3));
        let half = case.each_ref().map(|x| x.to_kind(Kind::BFloat16));
        let widened = half.each_ref().map(|x| x.to_kind(Kind::Float));
        for path in [fast(), STEPS] {
            let narrow = all(path, &half, None, false);
            let want = all(path, &widened, None, false);
            assert!(narrow[1].kind() == Kind::Float && narrow[1].equal(&want[1]));
            for i in [0, 2, 3, 4, 5, 6, 7] {
                assert!(narrow[i].equal(&want[i].to_kind(Kind::BFloat16)), "result {i}");
            }
        }
    }
}
