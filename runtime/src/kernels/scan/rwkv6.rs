//! The WKV recurrence of RWKV-6 (Peng et al. 2024, section 4), which reads before it writes:
//!     y_t = Sᵀ r_t + (Σ r_t u k_t) v_t,   S ← diag(exp g_t) S + k_t v_tᵀ
//! From r, k, g [b, t, h, d], v [b, t, h, e], u [h, d] to y [b, t, h, e] and S [b, h, d, e]; or dr, dk, dv, dg, du.
//!
//! The state before token t is the one after token t − 1. So the fused form is the chunked scan of gated linear
//! attention with each query one token early, and then one loop that moves its results one token on and adds the bonus.

use tch::Tensor;

use super::super::ffi::{self, ByHead, HeadRows};
use super::super::lanes::{dot, mul_add};
use super::super::{Isa, KernelError};
use super::fused;
use super::operands::{FusedOperands, ScanRule, StateLayout};
use super::{
    CHANNEL_CHUNK, Path, Result, Scanned, apply, apply_t, at, exactly, four, narrow, not_here,
    outer, reversed, start, sum_last, wide,
};

#[derive(Debug, Clone, Copy)]
pub struct Rwkv6Operands<'a> {
    pub r: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub g: &'a Tensor,
    pub u: &'a Tensor,
}

pub fn forward(path: Path, operands: Rwkv6Operands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let like = operands.v;
    let [r, k, v, g, u] = &wide(operands.all())?;
    let operands = Rwkv6Operands { r, k, v, g, u };
    let Scanned { y, state } = match path {
        Path::Fused(isa) => chunked(isa, CHANNEL_CHUNK, operands, state)?,
        Path::Reference(_) => steps(operands, state)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    Ok(Scanned { y: y.f_to_kind(like.kind())?, state })
}

/// From zero state: dr, dk, dv, dg, du.
pub fn backward(path: Path, dy: &Tensor, operands: Rwkv6Operands<'_>) -> Result<[Tensor; 5]> {
    let like = operands.all();
    let ([r, k, v, g, u], [dy]) = (&wide(like)?, &wide([dy])?);
    let operands = Rwkv6Operands { r, k, v, g, u };
    let grads = match path {
        Path::Fused(isa) => chunked_backward(isa, CHANNEL_CHUNK, dy, operands)?,
        Path::Reference(_) => steps_backward(dy, operands)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    narrow(&grads, like)
}

impl<'a> Rwkv6Operands<'a> {
    pub(super) fn from_inputs(x: &[&'a Tensor]) -> Result<Self> {
        let [r, k, v, g, u] = exactly(x)?;
        Ok(Self { r, k, v, g, u })
    }

    fn all(self) -> [&'a Tensor; 5] {
        [self.r, self.k, self.v, self.g, self.u]
    }

    fn fused(self, early: &'a Tensor) -> FusedOperands<'a> {
        let Rwkv6Operands { r: _, k, v, g, u: _ } = self;
        FusedOperands { q: early, k, v, g, beta: None, low_rank: None, scale: 1.0 }
    }

    /// Sizes [b, t, h, d, e], after checking u.
    fn sizes(self) -> Result<[usize; 5]> {
        let [b, t, h, d] = four("r", self.r)?;
        let [_, _, _, e] = four("v", self.v)?;
        if self.u.size() != [h, d] {
            return Err(KernelError::new(format!(
                "a scan's u of shape {:?}, expected {:?}",
                self.u.size(),
                [h, d]
            )));
        }
        Ok([b, t, h, d, e].map(|n| n as usize))
    }
}

/// Each token's row at the token before it; zeros at the last.
fn earlier(x: &Tensor) -> Result<Tensor> {
    let [_, time, _, _] = four("a row for each token", x)?;
    let rest = x.f_narrow(1, time.min(1), (time - 1).max(0))?;
    let last = x.f_narrow(1, 0, time.min(1))?.f_zeros_like()?;
    Ok(Tensor::f_cat(&[rest, last], 1)?)
}

fn chunked(
    isa: Isa,
    chunk: usize,
    operands: Rwkv6Operands<'_>,
    state: Option<&Tensor>,
) -> Result<Scanned> {
    let [b, time, h, d, e] = operands.sizes()?;
    let early = earlier(operands.r)?;
    let scanned = fused::forward(
        isa,
        ScanRule::Channel,
        StateLayout::Keys,
        chunk,
        operands.fused(&early),
        state,
    )?;
    let mut y = scanned.y.f_zeros_like()?;
    if let Some(state) = state.filter(|_| time > 0) {
        // The first token reads the state that was given.
        y.f_select(1, 0)?.f_copy_(&apply_t(state, &at(operands.r, 0)?)?)?;
    }
    let dense = Dense::from_operands(operands)?;
    let (scan, later) = (dense.rows()?, ffi::slice(&scanned.y)?);
    let outs = [ByHead { data: ffi::slice_mut(&mut y, &[&scanned.y])?, time }];
    ffi::parallel_heads([b, h], outs, |task, [y]| {
        ffi::run_on(isa, Read { scan, later, y, sizes: [time, h, d, e], task });
    });
    Ok(Scanned { y, state: scanned.state })
}

fn chunked_backward(
    isa: Isa,
    chunk: usize,
    dy: &Tensor,
    operands: Rwkv6Operands<'_>,
) -> Result<[Tensor; 5]> {
    let [b, time, h, d, e] = operands.sizes()?;
    let early = earlier(operands.r)?;
    let shifted = earlier(dy)?;
    let mut grads =
        fused::backward(isa, ScanRule::Channel, chunk, &shifted, operands.fused(&early))?;
    let mut dr = grads.q.f_zeros_like()?;
    let mut bonus = dr.f_new_zeros([b as i64, 1, h as i64, d as i64], (dr.kind(), dr.device()))?;
    let dense = Dense::from_operands(operands)?;
    let dy = dy.f_contiguous()?;
    let (scan, dy, from) = (dense.rows()?, ffi::slice(&dy)?, ffi::slice(&grads.q)?);
    let outs = [
        ByHead { data: ffi::slice_mut(&mut dr, &[&grads.q])?, time },
        ByHead { data: ffi::slice_mut(&mut grads.k, &[])?, time },
        ByHead { data: ffi::slice_mut(&mut grads.v, &[])?, time },
        ByHead { data: ffi::slice_mut(&mut bonus, &[])?, time: 1 },
    ];
    ffi::parallel_heads([b, h], outs, |task, outs| {
        ffi::run_on(isa, ReadBack { scan, dy, from, outs, sizes: [time, h, d, e], task });
    });
    // Batch items in order, so that the sum has one value.
    let mut du = dr.f_new_zeros([h as i64, d as i64], (dr.kind(), dr.device()))?;
    for item in 0..b as i64 {
        du = du.f_add(&bonus.f_select(0, item)?.f_squeeze_dim(0)?)?;
    }
    Ok([dr, grads.k, grads.v, grads.g, du])
}

/// The operands of the bonus in dense memory.
struct Dense([Tensor; 4]);

impl Dense {
    fn from_operands(Rwkv6Operands { r, k, v, g: _, u }: Rwkv6Operands<'_>) -> Result<Self> {
        Ok(Self([r.f_contiguous()?, k.f_contiguous()?, v.f_contiguous()?, u.f_contiguous()?]))
    }

    fn rows(&self) -> Result<Bonus<'_>> {
        let Self([r, k, v, u]) = self;
        Ok(Bonus { r: ffi::slice(r)?, k: ffi::slice(k)?, v: ffi::slice(v)?, u: ffi::slice(u)? })
    }
}

#[derive(Clone, Copy)]
struct Bonus<'a> {
    r: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    u: &'a [f32],
}

/// Of a task, numbered batch · heads + head: the row at a time.
#[inline(always)]
fn row(x: &[f32], task: usize, t: usize, [time, heads]: [usize; 2], width: usize) -> &[f32] {
    let (item, head) = (task / heads, task % heads);
    &x[((item * time + t) * heads + head) * width..][..width]
}

/// y_t += Σ r u k v, and the scan's result of the token before.
struct Read<'a> {
    scan: Bonus<'a>,
    later: &'a [f32],
    y: HeadRows<'a>,
    sizes: [usize; 4],
    task: usize,
}

impl ffi::Vectorised for Read<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Read { scan: Bonus { r, k, v, u }, later, mut y, sizes: [time, h, d, e], task } = self;
        let u = &u[task % h * d..][..d];
        let mut weighted = vec![0.0f32; d];
        for t in 0..time {
            multiply(&mut weighted, u, row(k, task, t, [time, h], d));
            let bonus = dot::<FMA>(row(r, task, t, [time, h], d), &weighted);
            let y = y.row(t);
            if t > 0 {
                y.copy_from_slice(row(later, task, t - 1, [time, h], e));
            }
            add_scaled::<FMA>(y, bonus, row(v, task, t, [time, h], e));
        }
    }
}

/// Adds the bonus to dr, dk and dv, moves dr one token on, and sums du.
struct ReadBack<'a> {
    scan: Bonus<'a>,
    dy: &'a [f32],
    /// Gradients of the queries that were one token early.
    from: &'a [f32],
    outs: [HeadRows<'a>; 4],
    sizes: [usize; 4],
    task: usize,
}

impl ffi::Vectorised for ReadBack<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let ReadBack { scan: Bonus { r, k, v, u }, dy, from, outs, sizes, task } = self;
        let ([mut dr, mut dk, mut dv, mut du], [time, h, d, e]) = (outs, sizes);
        let u = &u[task % h * d..][..d];
        let mut weighted = vec![0.0f32; d];
        // In f64: the sum runs over the whole sequence.
        let mut sum = vec![0.0f64; d];
        for t in 0..time {
            let (r, k) = (row(r, task, t, [time, h], d), row(k, task, t, [time, h], d));
            let (v, dy) = (row(v, task, t, [time, h], e), row(dy, task, t, [time, h], e));
            let through = dot::<FMA>(dy, v);
            multiply(&mut weighted, u, k);
            let bonus = dot::<FMA>(r, &weighted);
            let to = dr.row(t);
            if t > 0 {
                to.copy_from_slice(row(from, task, t - 1, [time, h], d));
            }
            add_scaled::<FMA>(to, through, &weighted);
            add_scaled::<FMA>(dv.row(t), bonus, dy);
            multiply(&mut weighted, u, r);
            add_scaled::<FMA>(dk.row(t), through, &weighted);
            for (sum, (r, k)) in sum.iter_mut().zip(r.iter().zip(k)) {
                *sum += f64::from(through) * f64::from(*r) * f64::from(*k);
            }
        }
        du.row(0).iter_mut().zip(&sum).for_each(|(to, sum)| *to = *sum as f32);
    }
}

#[inline(always)]
fn multiply(into: &mut [f32], a: &[f32], b: &[f32]) {
    into.iter_mut().zip(a.iter().zip(b)).for_each(|(to, (a, b))| *to = a * b);
}

#[inline(always)]
fn add_scaled<const FMA: bool>(into: &mut [f32], by: f32, x: &[f32]) {
    into.iter_mut().zip(x).for_each(|(to, x)| *to = mul_add::<FMA>(by, *x, *to));
}

fn steps(operands: Rwkv6Operands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let Rwkv6Operands { r, k, v, g: _, u } = operands;
    let [_, time, _, _] = four("r", r)?;
    let mut s = begin(operands, state)?;
    let mut y = Vec::new();
    for t in 0..time {
        let bonus = sum_last(&at(r, t)?.f_mul(u)?.f_mul(&at(k, t)?)?, 1)?.f_unsqueeze(-1)?;
        y.push(apply_t(&s, &at(r, t)?)?.f_add(&bonus.f_mul(&at(v, t)?)?)?);
        s = step(operands, &s, t)?;
    }
    Ok(Scanned { y: Tensor::f_stack(&y, 1)?, state: s })
}

/// With D = ∂/∂S_t and c = dy · v: dr = S_{t−1} dy + c u k, dk = D v + c u r, dv = Dᵀ k + (Σ r u k) dy,
/// dg = exp g ⊙ Σ_e D ⊙ S_{t−1}, du = Σ c r k; then D ← diag(exp g) D + r dyᵀ.
fn steps_backward(dy: &Tensor, operands: Rwkv6Operands<'_>) -> Result<[Tensor; 5]> {
    let Rwkv6Operands { r, k, v, g, u } = operands;
    let [_, time, _, _] = four("r", r)?;
    let mut states = vec![begin(operands, None)?];
    for t in 1..time {
        if let Some(before) = states.last() {
            states.push(step(operands, before, t - 1)?);
        }
    }
    let (mut dr, mut dk, mut dv, mut dg) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut du = u.f_zeros_like()?;
    let mut ds = begin(operands, None)?;
    for t in (0..time).rev() {
        let Some(before) = states.pop() else { break };
        let (r, k, v, dy) = (&at(r, t)?, &at(k, t)?, &at(v, t)?, &at(dy, t)?);
        let through = sum_last(&dy.f_mul(v)?, 1)?.f_unsqueeze(-1)?;
        let bonus = sum_last(&r.f_mul(u)?.f_mul(k)?, 1)?.f_unsqueeze(-1)?;
        dr.push(apply(&before, dy)?.f_add(&u.f_mul(k)?.f_mul(&through)?)?);
        dk.push(apply(&ds, v)?.f_add(&u.f_mul(r)?.f_mul(&through)?)?);
        dv.push(apply_t(&ds, k)?.f_add(&bonus.f_mul(dy)?)?);
        let products = r.f_mul(k)?.f_mul(&through)?;
        du = du.f_add(&products.f_sum_dim_intlist([0i64].as_slice(), false, None)?)?;
        let decay = at(g, t)?.f_exp()?; // [b, h, d]
        dg.push(sum_last(&ds.f_mul(&before)?, 1)?.f_mul(&decay)?);
        ds = ds.f_mul(&decay.f_unsqueeze(-1)?)?.f_add(&outer(r, dy)?)?;
    }
    Ok([reversed(dr)?, reversed(dk)?, reversed(dv)?, reversed(dg)?, du])
}

fn begin(operands: Rwkv6Operands<'_>, state: Option<&Tensor>) -> Result<Tensor> {
    let [b, _, h, d] = four("r", operands.r)?;
    let [_, _, _, e] = four("v", operands.v)?;
    start(state, [b, h, d, e], operands.r)
}

fn step(operands: Rwkv6Operands<'_>, s: &Tensor, t: i64) -> Result<Tensor> {
    let Rwkv6Operands { r: _, k, v, g, u: _ } = operands;
    let kept = s.f_mul(&at(g, t)?.f_exp()?.f_unsqueeze(-1)?)?;
    Ok(kept.f_add(&outer(&at(k, t)?, &at(v, t)?)?)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tch::{Device, Kind};

    use super::super::tests::{assert_close, gates, numbers};
    use super::*;
    use crate::kernels::path::{self, Reason};

    const STEPS: Path = Path::Reference(Reason::Asked);

    /// r, k, v, g, u, dy, state.
    fn case([b, t, h, d, e]: [i64; 5], strength: Option<f64>) -> [Tensor; 7] {
        [
            numbers(1, &[b, t, h, d]),
            numbers(2, &[b, t, h, d]),
            numbers(3, &[b, t, h, e]),
            gates(4, &[b, t, h, d], strength),
            numbers(5, &[h, d]),
            numbers(6, &[b, t, h, e]),
            numbers(7, &[b, h, d, e]),
        ]
    }

    fn all(path: Path, [r, k, v, g, u, dy, s]: &[Tensor; 7], stateful: bool) -> Vec<Tensor> {
        let operands = Rwkv6Operands { r, k, v, g, u };
        let Scanned { y, state } = forward(path, operands, stateful.then_some(s)).unwrap();
        [y, state].into_iter().chain(backward(path, dy, operands).unwrap()).collect()
    }

    fn fast() -> Path {
        path::choose(Kind::Float, Device::Cpu)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn chunked_is_step_by_step(
            b in 1i64..=2, t in 1i64..=90, h in 1i64..=3, d in 1i64..=40, e in 1i64..=40,
            strength in prop_oneof![Just(None), Just(Some(0.0)), Just(Some(1.0)), Just(Some(50.0))],
            stateful in any::<bool>(),
        ) {
            let case = case([b, t, h, d, e], strength);
            let exact = all(STEPS, &case.each_ref().map(|x| x.to_kind(Kind::Double)), stateful);
            assert_close(&all(fast(), &case, stateful), &exact, 2e-5, "rwkv6");
        }
    }

    /// The reference's handwritten backward is libtorch's gradient of its forward.
    #[test]
    fn the_reference_is_autograd() {
        let leaves = case([2, 9, 2, 4, 3], Some(0.7)).map(|x| x.to_kind(Kind::Double));
        let [r, k, v, g, u, dy, _] = leaves.map(|x| x.set_requires_grad(true));
        let operands = Rwkv6Operands { r: &r, k: &k, v: &v, g: &g, u: &u };
        let loss = (steps(operands, None).unwrap().y * &dy).sum(Kind::Double);
        let theirs = Tensor::run_backward(&[loss], &[&r, &k, &v, &g, &u], false, false);
        assert_close(&steps_backward(&dy, operands).unwrap(), &theirs, 1e-12, "autograd");
    }

    #[test]
    fn long_times_and_strong_gates_lose_nothing() {
        for strength in [None, Some(1e-6), Some(1e4)] {
            let case = case([1, 1500, 1, 4, 4], strength);
            let exact = all(STEPS, &case.each_ref().map(|x| x.to_kind(Kind::Double)), false);
            assert_close(&all(fast(), &case, false), &exact, 5e-5, &format!("{strength:?}"));
        }
    }

    #[test]
    fn bf16_operands_meet_f32_states() {
        let case = case([2, 21, 2, 8, 12], Some(0.3));
        let half = case.each_ref().map(|x| x.to_kind(Kind::BFloat16));
        let widened = half.each_ref().map(|x| x.to_kind(Kind::Float));
        let (narrow, want) = (all(fast(), &half, false), all(fast(), &widened, false));
        assert!(narrow[1].kind() == Kind::Float && narrow[1].equal(&want[1]));
        for i in [0, 2, 3, 4, 5, 6] {
            assert!(narrow[i].equal(&want[i].to_kind(Kind::BFloat16)), "result {i}");
        }
    }
}
