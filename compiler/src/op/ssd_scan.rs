//! `ssd_scan(x, dt, a, b, c, d)`: the state-space dual recurrence of Mamba2 (Dao and Gu 2024,
//! eq. 1 and section 7). Per head with state S `[P, N]`: `S ← exp(dt_t a) S + dt_t x_t b_tᵀ`,
//! `y_t = S c_t + d x_t`; head j reads group ⌊j·groups/heads⌋ of b and c.

use super::{
    Arity, Attrs, Context, Cost, Mismatch, Primitive, Shaped, State, Time, Type, per_head,
};
use crate::lower::{Call, Gradients, Lower, Lowered};
use crate::plan::{Kernel, ValId};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "ssd_scan",
    revision: 1,
    doc: "S ← e^(dt a) S + dt x bᵀ, y = S c + d x (Dao and Gu 2024, section 7)",
    tensors: Arity::Exactly(6),
    config: &[],
    time: Time::Stateful,
    shape,
    cost,
    forward,
    backward,
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
        ));
    }
    if b != c || heads % groups != 0 {
        return Err(Mismatch::new(
            format!("b {b} and c {c} must be equal, with groups that divide {heads} heads"),
            "split b and c into the same number of groups, a divisor of the heads",
        ));
    }
    let mut shaped = Shaped::plain(x.clone());
    shaped.state = Some(State::Matrix { heads, rows, columns });
    Ok(shaped)
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = inputs.iter().filter(|t| t.time).chain(outputs).map(Type::elements).sum();
    let columns = inputs.get(3).and_then(|b| b.dims.last()).copied().unwrap_or(0);
    let values: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: 6 * columns * values, moved: n, saved: n }
}

fn forward(l: &mut Lower, call: &Call) -> Lowered {
    let inputs: Vec<ValId> = call.operands.iter().chain(&call.past).copied().collect();
    let [y, state] = l.emit(Kernel::SsdScan { state: !call.past.is_empty() }, &inputs);
    let state = if call.keeps_state { vec![state] } else { Vec::new() };
    Lowered { outputs: vec![y], saved: Vec::new(), state }
}

/// With α = exp(dt a), dS the gradient of S_t (+ dy_t c_tᵀ): dc = S_tᵀ dy, dx = dt dS b + d dy,
/// db = dt dSᵀ x, ddt = Σ a α S_{t−1} ⊙ dS + x·(dS b), da = Σ dt α S_{t−1} ⊙ dS, dd = Σ x·dy,
/// dS_{t−1} = α dS; sums over a group's heads for b and c. States are recomputed.
fn backward(l: &mut Lower, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let inputs: Vec<ValId> = dy.iter().flatten().chain(&call.operands).copied().collect();
    l.emit_all(Kernel::SsdScanGrad, inputs).into_iter().map(Some).collect()
}
