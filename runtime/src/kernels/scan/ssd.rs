//! Mamba2's state-space recurrence (Dao and Gu 2024, section 7):
//!     S ← exp(dt_t a) S + dt_t x_t b_tᵀ,   y_t = S c_t + d x_t
//! From x [b, t, h, p], dt [b, t, h], a and d \[h\], b and c [b, t, groups, n] to y [b, t, h, p] and S
//! [b, h, p, n]; or dx, ddt, da, db, dc, dd. Head j reads group ⌊j·groups/h⌋.

use tch::{Kind, Tensor};

use super::super::arrange::{repeat_heads, sum_repeats};
use super::super::{Isa, KernelError};
use super::fused;
use super::operands::{FusedOperands, ScanRule, StateLayout};
use super::{
    Path, Result, SCALAR_CHUNK, Scanned, apply, apply_t, at, exactly, four, narrow, not_here,
    outer, over_matrix, reversed, start, sum_last, wide,
};

#[derive(Debug, Clone, Copy)]
pub struct SsdOperands<'a> {
    pub x: &'a Tensor,
    pub dt: &'a Tensor,
    pub a: &'a Tensor,
    pub b: &'a Tensor,
    pub c: &'a Tensor,
    pub d: &'a Tensor,
}

pub fn forward(path: Path, operands: SsdOperands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let like = operands.x;
    let [x, dt, a, b, c, d] = &wide(operands.all())?;
    let operands = SsdOperands { x, dt, a, b, c, d };
    let Scanned { y, state } = match path {
        Path::Fused(isa) => chunked(isa, SCALAR_CHUNK, operands, state)?,
        Path::Reference(_) => steps(operands, state)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    Ok(Scanned { y: y.f_to_kind(like.kind())?, state })
}

/// From zero state: dx, ddt, da, db, dc, dd.
pub fn backward(path: Path, dy: &Tensor, operands: SsdOperands<'_>) -> Result<[Tensor; 6]> {
    let like = operands.all();
    let ([x, dt, a, b, c, d], [dy]) = (&wide(like)?, &wide([dy])?);
    let operands = SsdOperands { x, dt, a, b, c, d };
    let grads = match path {
        Path::Fused(isa) => chunked_backward(isa, SCALAR_CHUNK, dy, operands)?,
        Path::Reference(_) => steps_backward(dy, operands)?,
        Path::Cuda(_) => return Err(not_here()),
    };
    narrow(&grads, like)
}

/// The scan of keys b, queries c and values x, with gates dt a and dt for β. Its state is the transpose of ours.
pub(super) fn chunked(
    isa: Isa,
    chunk: usize,
    operands: SsdOperands<'_>,
    state: Option<&Tensor>,
) -> Result<Scanned> {
    let SsdOperands { x, dt, a, d, .. } = operands;
    let gates = dt.f_mul(a)?; // [b, t, h]
    let (rule, layout) = (ScanRule::Scalar, StateLayout::Values);
    let mut scan = fused::forward(isa, rule, layout, chunk, operands.fused(&gates), state)?;
    let y = scan.y.f_addcmul_(x, &d.f_unsqueeze(-1)?)?;
    Ok(Scanned { y, state: scan.state })
}

pub(super) fn chunked_backward(
    isa: Isa,
    chunk: usize,
    dy: &Tensor,
    operands: SsdOperands<'_>,
) -> Result<[Tensor; 6]> {
    let SsdOperands { x, dt, a, b, c: _, d } = operands;
    let [_, _, heads, _] = four("x", x)?;
    let [_, _, groups, _] = four("b", b)?;
    let gates = dt.f_mul(a)?;
    let mut grads = fused::backward(isa, ScanRule::Scalar, chunk, dy, operands.fused(&gates))?;
    let ddt = grads.beta.ok_or_else(|| KernelError::new("no gradient of dt".to_owned()))?;
    let per_head = |x: &Tensor| x.f_sum_dim_intlist([0i64, 1].as_slice(), false, None::<Kind>);
    let times = heads / groups.max(1);
    Ok([
        grads.v.f_addcmul_(dy, &d.f_unsqueeze(-1)?)?,
        ddt.f_add(&grads.g.f_mul(a)?)?,
        per_head(&grads.g.f_mul(dt)?)?,
        sum_repeats(&grads.k, times)?,
        sum_repeats(&grads.q, times)?,
        per_head(&sum_last(&dy.f_mul(x)?, 1)?)?,
    ])
}

impl<'a> SsdOperands<'a> {
    pub(super) fn from_inputs(x: &[&'a Tensor]) -> Result<Self> {
        let [x, dt, a, b, c, d] = exactly(x)?;
        Ok(Self { x, dt, a, b, c, d })
    }

    fn all(self) -> [&'a Tensor; 6] {
        [self.x, self.dt, self.a, self.b, self.c, self.d]
    }

    fn fused(self, gates: &'a Tensor) -> FusedOperands<'a> {
        let SsdOperands { x, dt, b, c, .. } = self;
        FusedOperands { q: c, k: b, v: x, g: gates, beta: Some(dt), low_rank: None, scale: 1.0 }
    }
}

pub(super) fn steps(operands: SsdOperands<'_>, state: Option<&Tensor>) -> Result<Scanned> {
    let (scan, mut s) = SpreadOperands::begin(operands, state)?;
    let mut y = Vec::new();
    for t in 0..scan.time {
        s = scan.step(&s, t)?;
        y.push(apply(&s, &at(&scan.c, t)?)?);
    }
    let through = operands.x.f_mul(&operands.d.f_unsqueeze(-1)?)?; // [b, t, h, p]
    Ok(Scanned { y: Tensor::f_stack(&y, 1)?.f_add(&through)?, state: s })
}

/// With D = ∂/∂S_t: D gains dy cᵀ; dc = Sᵀ dy; dx = dt D b + d dy; db = dt Dᵀ x; dd = Σ dy · x; with
/// α = exp(dt a) and dα = Σ D ⊙ S_{t−1}: ddt = x · D b + a α dα, da = Σ dt α dα; then D ← α D.
pub(super) fn steps_backward(dy: &Tensor, operands: SsdOperands<'_>) -> Result<[Tensor; 6]> {
    let (scan, zeros) = SpreadOperands::begin(operands, None)?;
    let SsdOperands { x, dt, a, b: _, c: _, d } = operands;
    let mut states = vec![zeros];
    for t in 0..scan.time {
        if let Some(before) = states.last() {
            states.push(scan.step(before, t)?);
        }
    }
    let (mut dx, mut ddt, mut da) = (Vec::new(), Vec::new(), Vec::new());
    let (mut db, mut dc) = (Vec::new(), Vec::new());
    let mut ds: Option<Tensor> = None;
    for t in (0..scan.time).rev() {
        let (Some(after), Some(before)) = (states.pop(), states.last()) else { break };
        let (dy, x, dt) = (at(dy, t)?, at(x, t)?, at(dt, t)?);
        let (b, c) = (at(&scan.b, t)?, at(&scan.c, t)?); // [b, h, n]
        let from_y = outer(&dy, &c)?;
        let ds_after = match ds {
            Some(ds) => ds.f_add(&from_y)?,
            None => from_y,
        };
        let each = dt.f_unsqueeze(-1)?; // [b, h, 1]
        let into_x = apply(&ds_after, &b)?; // [b, h, p]
        dx.push(into_x.f_mul(&each)?);
        db.push(apply_t(&ds_after, &x)?.f_mul(&each)?);
        dc.push(apply_t(&after, &dy)?);
        let alpha = dt.f_mul(a)?.f_exp()?; // [b, h]
        let dalpha = sum_last(&ds_after.f_mul(before)?, 2)?.f_mul(&alpha)?;
        ddt.push(sum_last(&into_x.f_mul(&x)?, 1)?.f_add(&dalpha.f_mul(a)?)?);
        da.push(dalpha.f_mul(&dt)?);
        ds = Some(ds_after.f_mul(&over_matrix(&alpha)?)?);
    }
    let per_head = |x: &Tensor| x.f_sum_dim_intlist([0i64, 1].as_slice(), false, None::<Kind>);
    let through = dy.f_mul(&d.f_unsqueeze(-1)?)?;
    Ok([
        reversed(dx)?.f_add(&through)?,
        reversed(ddt)?,
        per_head(&reversed(da)?)?,
        sum_repeats(&reversed(db)?, scan.times)?,
        sum_repeats(&reversed(dc)?, scan.times)?,
        per_head(&sum_last(&dy.f_mul(x)?, 1)?)?,
    ])
}

/// Operands with b and c spread over heads.
struct SpreadOperands<'a> {
    operands: SsdOperands<'a>,
    b: Tensor, // [b, t, h, n]
    c: Tensor, // [b, t, h, n]
    time: i64,
    /// Heads per group.
    times: i64,
}

impl<'a> SpreadOperands<'a> {
    fn begin(operands: SsdOperands<'a>, state: Option<&Tensor>) -> Result<(Self, Tensor)> {
        let [batch, time, heads, p] = four("x", operands.x)?;
        let [_, _, groups, n] = four("b", operands.b)?;
        if groups == 0 || heads % groups != 0 {
            return Err(KernelError::new(format!("{heads} heads over {groups} groups")));
        }
        let times = heads / groups;
        let (b, c) = (repeat_heads(operands.b, times)?, repeat_heads(operands.c, times)?);
        let s = start(state, [batch, heads, p, n], operands.x)?;
        Ok((Self { operands, b, c, time, times }, s))
    }

    fn step(&self, s: &Tensor, t: i64) -> Result<Tensor> {
        let SsdOperands { x, dt, a, .. } = self.operands;
        let dt = at(dt, t)?;
        let kept = s.f_mul(&over_matrix(&dt.f_mul(a)?.f_exp()?)?)?;
        let x = at(x, t)?.f_mul(&dt.f_unsqueeze(-1)?)?;
        Ok(kept.f_add(&outer(&x, &at(&self.b, t)?)?)?)
    }
}
