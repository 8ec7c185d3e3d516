//! `ssd_scan(x, dt, a, b, c, d)`: the state-space dual recurrence of Mamba2 (Dao and Gu 2024,
//! eq. 1 and section 7). Per head with state S `[P, N]`: `S ← exp(dt_t a) S + dt_t x_t b_tᵀ`,
//! `y_t = S c_t + d x_t`; head j reads group ⌊j·groups/heads⌋ of b and c.

use super::{
    Arity, Attrs, Context, Cost, Drawn, Mismatch, Primitive, Recurrence, Shaped, State, Time, Type,
    per_head, scan_backward, scan_cost, scan_forward,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "ssd_scan",
    revision: 1,
    doc: "S ← e^(dt a) S + dt x bᵀ, y = S c + d x (Dao and Gu 2024, section 7)",
    why: "state: a matrix per head, with groups and a step size in one kernel",
    torch: None,
    tensors: Arity::Exactly(6),
    config: &[],
    time: Time::Stateful,
    shape,
    cost,
    forward: |plan, call| scan_forward(plan, call, &SCAN),
    backward: |plan, call, _, dy| scan_backward(plan, call, dy, &SCAN),
    drawn: Drawn::PER_HEAD,
    examples: &["param A [4] init ones  param D [4] init ones \
         y = ssd_scan(heads(linear x (x, 8), 4), softplus(linear dt (x, 4)), -exp(f32(A)), \
         heads(linear b (x, 6), 2), heads(linear c (x, 6), 2), D) \
         linear o (merge(y), 6)"],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x, dt, a, b, c, d] = inputs else {
        return Err(Mismatch::new(
            "`ssd_scan` takes x, dt, a, b, c and d",
            "write `ssd_scan(x, dt, a, b, c, d)`",
        ));
    };
    let (heads, rows) = per_head("ssd_scan", "x", x)?;
    let (groups, columns) = per_head("ssd_scan", "b", b)?;
    let per_head_constant = Type::constant([heads]);
    if *dt != Type::seq([heads]) || *a != per_head_constant || *d != per_head_constant {
        return Err(Mismatch::new(
            format!("x has {heads} heads, but dt is {dt}, a is {a} and d is {d}"),
            format!("dt is [batch, time, {heads}]; a and d are parameters of {heads} elements"),
        )
        .about(&["heads"]));
    }
    if b != c || heads % groups != 0 {
        return Err(Mismatch::new(
            format!("b {b} and c {c} must be equal, with groups that divide {heads} heads"),
            "split b and c into the same number of groups, a divisor of the heads",
        )
        .about(&["groups", "heads"]));
    }
    let mut shaped = Shaped::plain(x.clone());
    shaped.state = Some(State::Matrix { heads, rows, columns });
    Ok(shaped)
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    scan_cost(&SCAN, inputs, outputs)
}

/// With α = exp(dt a), dS the gradient of S_t (+ dy_t c_tᵀ): dc = S_tᵀ dy, dx = dt dS b + d dy,
/// db = dt dSᵀ x, ddt = Σ a α S_{t−1} ⊙ dS + x·(dS b), da = Σ dt α S_{t−1} ⊙ dS, dd = Σ x·dy,
/// dS_{t−1} = α dS; sums over a group's heads for b and c. States are recomputed.
pub(super) static SCAN: Recurrence = Recurrence {
    name: "ssd_scan",
    gradient: "ssd_scan_grad",
    operands: &["x", "dt", "a", "b", "c", "d"],
    result: 0,
    rows: 0,
    columns: 3,
    flops: 6,
    #[cfg(test)]
    step: reference::step,
    #[cfg(test)]
    back: reference::back,
};

/// One head, token by token: what every kernel of it is compared to.
#[cfg(test)]
mod reference {
    use crate::kernel::reference::{At, Back, Matrix, dot, operands, scaled};
    use crate::kernel::tensor::Tensor;

    /// One token: changes the state, returns the result.
    pub(super) fn step(x: &[&Tensor], s: &mut Matrix, at: At) -> Vec<f64> {
        let [x, dt, a, b, c, d] = operands(x, at);
        let decay = libm::exp(dt[0] * a[0]);
        s.each(|_, _, x| *x *= decay);
        s.add_outer(&scaled(x, dt[0]), b);
        s.times(c).iter().zip(x).map(|(y, x)| y + d[0] * x).collect()
    }

    pub(super) fn back(x: &[&Tensor], back: &mut Back, at: At) {
        let [x, dt, a, b, c, d] = operands(x, at);
        let dy = back.dy;
        back.ds.add_outer(dy, c);
        back.add(4, at, &back.after.transposed_times(dy));
        let written = back.ds.times(b);
        back.add(0, at, &scaled(&written, dt[0]));
        back.add(0, at, &scaled(dy, d[0]));
        back.add(3, at, &scaled(&back.ds.transposed_times(x), dt[0]));
        let decay = libm::exp(dt[0] * a[0]);
        let kept = decay * back.before.dot(back.ds);
        back.add(1, at, &[a[0] * kept + dot(x, &written)]);
        back.add(2, at, &[dt[0] * kept]);
        back.add(5, at, &[dot(x, dy)]);
        back.ds.each(|_, _, x| *x *= decay);
    }
}
