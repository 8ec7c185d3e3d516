//! `gla_scan(q, k, v, g)`: gated linear attention (Yang et al. 2023, eq. 3). Per head with state
//! S `[Dk, Dv]`: `S ← diag(exp g_t) S + k_t v_tᵀ`, `o_t = Dk^(−1/2) Sᵀ q_t`, g ≤ 0 per key channel.

use super::{
    Arity, Attrs, Context, Cost, Mismatch, Primitive, Shaped, State, Time, Type, per_head,
};
use crate::lower::{Call, Gradients, Lower, Lowered};
use crate::plan::{Kernel, ValId};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "gla_scan",
    revision: 1,
    doc: "S ← diag(exp g) S + k vᵀ, o = Dk^(−1/2) Sᵀ q (Yang et al. 2023, eq. 3)",
    tensors: Arity::Exactly(4),
    config: &[],
    time: Time::Stateful,
    shape,
    cost,
    forward,
    backward,
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [q, k, v, g] = inputs else {
        return Err(Mismatch::new(
            "`gla_scan` takes q, k, v and g",
            "write `gla_scan(q, k, v, g)`",
        ));
    };
    let (heads, rows) = per_head("gla_scan", "q", q)?;
    let (value_heads, columns) = per_head("gla_scan", "v", v)?;
    if q != k || q != g || heads != value_heads {
        return Err(Mismatch::new(
            format!("q {q}, k {k} and g {g} must be equal, and v {v} must have their heads"),
            "split all four into the same number of heads; g has one entry per key channel",
        ));
    }
    let mut shaped = Shaped::plain(v.clone());
    shaped.state = Some(State::Matrix { heads, rows, columns });
    Ok(shaped)
}

/// Decay, outer product and read-out: six operations per state element and token.
pub(super) fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = inputs.iter().chain(outputs).map(Type::elements).sum();
    let rows = inputs.first().and_then(|q| q.dims.last()).copied().unwrap_or(0);
    let values: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: 6 * rows * values, moved: n, saved: n }
}

fn forward(l: &mut Lower, call: &Call) -> Lowered {
    let inputs: Vec<ValId> = call.operands.iter().chain(&call.past).copied().collect();
    let [y, state] = l.emit(Kernel::GlaScan { state: !call.past.is_empty() }, &inputs);
    let state = if call.keeps_state { vec![state] } else { Vec::new() };
    Lowered { outputs: vec![y], saved: Vec::new(), state }
}

/// With dS the gradient of the state, from the last token to the first: dS += d^(−1/2) q_t dy_tᵀ,
/// dq_t = d^(−1/2) S_t dy_t, dk_t = dS v_t, dv_t = dSᵀ k_t, dg_t = rows of exp(g_t) S_{t−1} ⊙ dS summed,
/// dS ← diag(exp g_t) dS. States are recomputed.
fn backward(l: &mut Lower, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let inputs: Vec<ValId> = dy.iter().flatten().chain(&call.operands).copied().collect();
    l.emit_all(Kernel::GlaScanGrad, inputs).into_iter().map(Some).collect()
}
